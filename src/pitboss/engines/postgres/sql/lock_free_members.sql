-- Those that nobody else has locked, in the order of their numbers.
SELECT number, pool, name, stage, rank, last_used_at, available_at, in_use, enabled, labels, settings, record
FROM {schema}.resources WHERE number = ANY (ARRAY(
    SELECT r.number FROM unnest(%(pools)s::text[], %(names)s::text[]) AS wanted (pool, name), LATERAL (
        SELECT number FROM {schema}.resources WHERE pool = wanted.pool AND name = wanted.name
    ) AS r
)) ORDER BY number FOR UPDATE SKIP LOCKED
