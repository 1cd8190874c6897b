SELECT number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM {schema}.sessions
WHERE expires_at + 3600000000 > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY number
