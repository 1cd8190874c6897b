SELECT 1 FROM pitboss_sessions WHERE number = ? AND ended = 0 AND expires_at > ?
