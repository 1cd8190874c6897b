-- Bindings and strikes that count no more.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), struck AS (
    DELETE FROM {schema}.strikes WHERE at <= (SELECT now FROM clock) - %(kept)s::bigint
)
DELETE FROM {schema}.bindings WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.bindings WHERE until <= (SELECT now FROM clock)
    ORDER BY until LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
))
