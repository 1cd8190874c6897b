SELECT resource, started_at FROM {schema}.tasks AS t
WHERE id = %(task)s::uuid AND state = 'running' AND resource IS NOT NULL
    AND session = %(session)s::bigint AND claim = %(claim)s::bigint AND EXISTS (
        SELECT FROM {schema}.sessions AS s WHERE s.number = t.session AND NOT s.ended
            AND s.expires_at > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
