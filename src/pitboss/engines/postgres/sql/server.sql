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

-- The lock that a transaction of this database has waited for longest, and who holds it.
-- name: server_locks
SELECT count(*) OVER ()::int,
    coalesce(extract(epoch FROM clock_timestamp() - locks.waitstart) * 1000000, 0)::bigint,
    holder.pid, holder.state
FROM pg_locks locks
JOIN pg_stat_activity waiting ON waiting.pid = locks.pid AND waiting.datname = current_database()
LEFT JOIN LATERAL (
    SELECT activity.pid, activity.state FROM pg_stat_activity activity
    WHERE activity.pid = ANY (pg_blocking_pids(locks.pid)) ORDER BY activity.xact_start LIMIT 1
) holder ON true
WHERE NOT locks.granted
ORDER BY locks.waitstart NULLS LAST
LIMIT 1
