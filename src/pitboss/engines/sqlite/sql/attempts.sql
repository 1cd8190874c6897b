-- name: attempt_record
INSERT OR REPLACE INTO pitboss_attempts (task, claim, attempt, outcome, started_at, ended_at, session, worker, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: attempt_forget
DELETE FROM pitboss_attempts
WHERE task = ?1 AND claim <= (SELECT claim FROM pitboss_attempts WHERE task = ?1 ORDER BY claim DESC LIMIT 1 OFFSET ?2)

-- name: attempt_list
SELECT claim, attempt, outcome, started_at, ended_at, session, worker, error FROM pitboss_attempts WHERE task = ? ORDER BY claim

-- name: attempt_remove
DELETE FROM pitboss_attempts WHERE task IN (SELECT value FROM json_each(?))
