SELECT id FROM {schema}.tasks
WHERE id = ANY (%(ids)s::uuid[]) AND state = 'pending'
    AND expires_at <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY id FOR UPDATE
