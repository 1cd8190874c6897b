SELECT DISTINCT known.value FROM pitboss_sessions, json_each(pitboss_sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?
