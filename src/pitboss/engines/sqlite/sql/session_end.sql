UPDATE pitboss_sessions SET ended = 1, expires_at = min(expires_at, ?2) WHERE number = ?1 AND ended = 0
