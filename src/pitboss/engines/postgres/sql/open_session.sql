INSERT INTO {schema}.sessions (host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at)
SELECT %(host)s::text, %(boot_id)s::text, %(pid)s::bigint, %(kind)s::text, %(handlers)s::text[], %(ttl)s::bigint,
    now, now + %(ttl)s::bigint
FROM (SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) AS clock
RETURNING number, opened_at, expires_at
