-- name: session_open
INSERT INTO pitboss_sessions (host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
RETURNING number

-- name: session_renew
UPDATE pitboss_sessions
SET expires_at = ?2 + ttl, snapshot = coalesce(?3, snapshot)
WHERE number = ?1 AND ended = 0 AND expires_at > ?2
RETURNING expires_at

-- name: session_get
SELECT number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM pitboss_sessions
WHERE number = ?

-- name: session_alive
SELECT 1 FROM pitboss_sessions WHERE number = ? AND ended = 0 AND expires_at > ?

-- name: session_end
UPDATE pitboss_sessions SET ended = 1, expires_at = min(expires_at, ?2) WHERE number = ?1 AND ended = 0

-- name: session_cancels
SELECT json_group_array(json_array(id, claim)) FROM pitboss_tasks WHERE state = 'running' AND cancel_asked = 1 AND session = ?

-- name: session_list
SELECT number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM pitboss_sessions
WHERE expires_at > ?
ORDER BY number

-- name: session_forget
DELETE FROM pitboss_sessions
WHERE
    expires_at <= ?
    AND NOT EXISTS (SELECT 1 FROM pitboss_tasks WHERE state = 'running' AND session = pitboss_sessions.number)

-- name: leader_get
SELECT term, number, host
FROM pitboss_leader JOIN pitboss_sessions ON number = session
WHERE ended = 0 AND expires_at > ?

-- name: leader_elect
UPDATE pitboss_leader
SET term = term + 1, session = ?1
RETURNING term, session, (SELECT host FROM pitboss_sessions WHERE number = ?1)

-- name: leader_resign
UPDATE pitboss_leader SET session = NULL WHERE session = ?
