DELETE FROM pitboss_sessions
WHERE
    expires_at <= ?
    AND NOT EXISTS (SELECT 1 FROM pitboss_tasks WHERE state = 'running' AND session = pitboss_sessions.number)
