SELECT DISTINCT name
FROM pitboss_handlers
WHERE name IN (
    SELECT known.value FROM pitboss_sessions, json_each(pitboss_sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?
)
