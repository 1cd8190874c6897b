DELETE FROM sessions
WHERE
    expires_at <= ?
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE state = 'running' AND session = sessions.number)
