SELECT DISTINCT known.value FROM sessions, json_each(sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?
