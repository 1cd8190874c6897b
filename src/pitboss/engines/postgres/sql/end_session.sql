UPDATE {schema}.sessions
SET ended = true, expires_at = least(expires_at, coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
WHERE number = %(session)s::bigint AND NOT ended
