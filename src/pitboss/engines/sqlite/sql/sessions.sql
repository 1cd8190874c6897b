SELECT number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM pitboss_sessions
WHERE
    expires_at > ?
    OR EXISTS (SELECT 1 FROM pitboss_tasks WHERE state = 'running' AND session = pitboss_sessions.number)
ORDER BY number
