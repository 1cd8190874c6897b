-- What claims and leases hold at this moment, by their places in the question; then the moment; then rules of pools.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)
SELECT c.place, t.resource, t.since, NULL AS rules
FROM unnest(%(claimed)s::bigint[], %(tasks)s::uuid[], %(sessions)s::bigint[], %(claims)s::bigint[])
    AS c (place, task, session, claim), clock, LATERAL (
        SELECT resource, coalesce(started_at, 0) AS since FROM {schema}.tasks
        WHERE id = c.task AND state = 'running' AND resource IS NOT NULL AND session = c.session AND claim = c.claim
            AND EXISTS (SELECT FROM {schema}.sessions WHERE number = c.session AND NOT ended AND expires_at > clock.now)
    ) AS t
UNION ALL
SELECT l.place, h.pool || '/' || h.name, h.leased_at, NULL
FROM unnest(%(leased)s::bigint[], %(leases)s::text[]) AS l (place, lease), clock, LATERAL (
    SELECT pool, name, leased_at FROM {schema}.leases WHERE id = l.lease AND expires_at > clock.now
) AS h
UNION ALL SELECT NULL, NULL, now, NULL FROM clock
UNION ALL SELECT NULL, name, NULL, rules FROM {schema}.pools WHERE name = ANY (%(pools)s::text[])
