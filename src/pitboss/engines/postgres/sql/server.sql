-- name: server_now
SELECT {now}

-- name: server_notify
SELECT pg_notify(%(channel)s::text, %(payload)s::text)

-- name: server_diagnose
SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_commit'), current_setting('autovacuum'),
    current_setting('max_connections')::int, pg_is_in_recovery(),
    (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'),
    {now}
