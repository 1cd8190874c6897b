WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)
UPDATE {schema}.leases SET expires_at = (SELECT now FROM clock) + %(hold)s::bigint
WHERE id = %(id)s::text AND expires_at > (SELECT now FROM clock) RETURNING expires_at
