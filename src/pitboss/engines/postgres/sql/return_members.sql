-- Members whose moment has come are ready again.
WITH due AS MATERIALIZED (
    SELECT r.place FROM unnest(%(pools)s::text[]) AS p (name), LATERAL (
        SELECT ctid AS place FROM {schema}.resources
        WHERE pool = p.name AND stage = 'away'
            AND available_at <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
        ORDER BY available_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS r
)
UPDATE {schema}.resources AS r SET stage = 'ready' FROM due WHERE r.ctid = due.place
