UPDATE pitboss_sessions
SET expires_at = ?2 + ttl, snapshot = coalesce(?3, snapshot)
WHERE number = ?1 AND ended = 0 AND expires_at > ?2
RETURNING expires_at
