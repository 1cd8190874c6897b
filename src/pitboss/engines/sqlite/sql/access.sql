-- name: api_key_put
INSERT OR REPLACE INTO pitboss_api_keys (id, name, digest, roles, created_at, created_by, revoked_at)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: api_key_revoke
UPDATE pitboss_api_keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1
RETURNING id, name, digest, roles, created_at, created_by, revoked_at

-- name: api_key_list
SELECT id, name, digest, roles, created_at, created_by, revoked_at FROM pitboss_api_keys

-- name: audit_add
INSERT OR IGNORE INTO pitboss_audit (id, who, act, target, details, source, at) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: audit_list
SELECT id, who, act, target, details, source, at FROM pitboss_audit ORDER BY id DESC LIMIT ?

-- name: audit_list_before
SELECT id, who, act, target, details, source, at FROM pitboss_audit WHERE id < ?2 ORDER BY id DESC LIMIT ?1

-- name: request_get
SELECT body, ids, at FROM pitboss_requests WHERE key = ? AND at > ?

-- name: request_put
INSERT OR REPLACE INTO pitboss_requests (key, body, ids, at) VALUES (?, ?, ?, ?)

-- name: request_forget
DELETE FROM pitboss_requests WHERE at <= ?
