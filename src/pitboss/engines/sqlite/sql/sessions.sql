SELECT number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM sessions
WHERE
    expires_at > ?
    OR EXISTS (SELECT 1 FROM tasks WHERE state = 'running' AND session = sessions.number)
ORDER BY number
