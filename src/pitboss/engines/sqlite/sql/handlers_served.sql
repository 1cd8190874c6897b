SELECT DISTINCT name
FROM handlers
WHERE name IN (
    SELECT known.value FROM sessions, json_each(sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?
)
