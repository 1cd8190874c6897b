-- The members that keys are bound to, as they are now.
SELECT w.key, r.number, r.pool, r.name, r.stage, r.rank, r.last_used_at, r.available_at, r.in_use, r.enabled, r.labels,
    r.settings, r.record
FROM unnest(%(pools)s::text[], %(keys)s::text[]) AS w (pool, key), LATERAL (
    SELECT name FROM {schema}.bindings AS b WHERE b.pool = w.pool AND b.key = w.key
        AND until > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
) AS b, LATERAL (
    SELECT * FROM {schema}.resources AS r WHERE r.pool = w.pool AND r.name = b.name
) AS r
