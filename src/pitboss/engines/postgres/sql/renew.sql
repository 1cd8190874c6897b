WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), renewed AS (
    UPDATE {schema}.sessions
    SET expires_at = now + ttl, snapshot = coalesce(%(snapshot)s::text, snapshot)
    FROM clock WHERE number = %(session)s::bigint AND NOT ended AND expires_at > now
    RETURNING expires_at
)
SELECT expires_at, (SELECT version FROM {schema}.desired WHERE one),
    ARRAY(
        SELECT id || ' ' || claim FROM {schema}.tasks
        WHERE state = 'running' AND cancel_asked AND session = %(session)s::bigint ORDER BY id
    )
FROM renewed
