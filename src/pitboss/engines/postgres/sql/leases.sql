-- name: lease_get
SELECT pool, name, leased_at, expires_at,
    expires_at > {now}, given
FROM {schema}.leases WHERE id = %(id)s::text

-- name: lease_lock
-- Two calls with the same name get one lease.
SELECT pg_advisory_xact_lock(hashtextextended(%(lease)s::text, 1))

-- name: lease_put
INSERT INTO {schema}.leases (id, pool, name, given, leased_at, expires_at)
VALUES (
    %(id)s::text, %(pool)s::text, %(name)s::text, %(given)s::text, %(now)s::bigint, %(expires_at)s::bigint
)

-- name: lease_extend
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
UPDATE {schema}.leases SET expires_at = (SELECT now FROM clock) + %(hold)s::bigint
WHERE id = %(id)s::text AND expires_at > (SELECT now FROM clock) RETURNING expires_at

-- name: lease_end
-- Whether members of its pool have strikes.
DELETE FROM {schema}.leases AS l WHERE id = %(id)s::text AND leased_at = %(since)s::bigint
RETURNING EXISTS (SELECT FROM {schema}.strikes AS s WHERE s.pool = l.pool)

-- name: lease_list_over
SELECT id, pool, name, leased_at FROM {schema}.leases
WHERE expires_at <= {now}
ORDER BY expires_at, id LIMIT %(limit)s::bigint

-- name: lease_end_over
-- End those that are still past their time. Their members are locked.
DELETE FROM {schema}.leases WHERE id = ANY (ARRAY(
    SELECT id FROM {schema}.leases
    WHERE id = ANY (%(ids)s::text[]) AND expires_at <= %(now)s::bigint ORDER BY id FOR UPDATE
)) RETURNING pool, name, leased_at
