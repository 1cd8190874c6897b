INSERT INTO pitboss_sessions (host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
RETURNING number
