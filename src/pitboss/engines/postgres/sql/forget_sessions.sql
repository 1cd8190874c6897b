-- A session that still holds tasks stays until they are reclaimed.
DELETE FROM {schema}.sessions AS s
WHERE expires_at + 3600000000 <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    AND (SELECT true FROM {schema}.tasks WHERE state = 'running' AND session = s.number LIMIT 1) IS NULL
