SELECT id, pool, name, leased_at FROM {schema}.leases
WHERE expires_at <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY expires_at, id LIMIT %(limit)s::bigint
