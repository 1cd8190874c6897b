SELECT pool, name, leased_at, expires_at,
    expires_at > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), given
FROM {schema}.leases WHERE id = %(id)s::text
