-- Running tasks of dead sessions that have a batch or a resource.
SELECT t.* FROM {schema}.sessions AS s, LATERAL (
    SELECT id, batch, resource, started_at, claim FROM {schema}.tasks
    WHERE state = 'running' AND session = s.number AND (batch IS NOT NULL OR resource IS NOT NULL)
    ORDER BY id LIMIT %(limit)s::bigint
) AS t
WHERE s.ended OR s.expires_at <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY t.id LIMIT %(limit)s
