SELECT 1 FROM sessions WHERE number = ? AND ended = 0 AND expires_at > ?
