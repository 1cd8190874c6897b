-- name: task_get
SELECT
    id, handler, queue, state, params, priority, created_at, run_at, attempts, max_attempts, timeout,
    expires_at, unique_key, tags, parent, reason, progress, note, result, error, outcome, session, claim,
    worker, started_at, finished_at, losses, crashes, cancel_asked,
    batch, want, resource, tried, rotations, claim_lasts, claim_expires_at, claim_key, order_key, meta, partition
FROM pitboss_tasks
WHERE id IN (SELECT value FROM json_each(?))

-- name: task_before
-- With values of another row instead of parameters, the index would be used for the priority alone.
SELECT count(*) FROM (
    SELECT 1 FROM pitboss_tasks
    WHERE queue = ?1 AND state = 'pending' AND (priority, id) < (?2, ?3)
    LIMIT ?4
)

-- name: task_ask_cancel
UPDATE pitboss_tasks SET cancel_asked = 1, reason = ? WHERE id IN (SELECT value FROM json_each(?))

-- name: task_change
UPDATE pitboss_tasks SET priority = ?2, tags = ?3 WHERE id = ?1

-- name: task_cancel
UPDATE pitboss_tasks
SET state = 'cancelled', reason = ?, finished_at = ?
WHERE id IN (SELECT value FROM json_each(?))

-- name: task_retry
UPDATE pitboss_tasks
SET
    state = ?2,
    reason = ?3,
    run_at = NULL,
    expires_at = NULL,
    started_at = NULL,
    finished_at = NULL,
    result = NULL,
    tried = NULL,
    rotations = 0,
    attempts = attempts * ?4,
    losses = losses * ?4,
    crashes = crashes * ?4,
    operation = ?5
WHERE id IN (SELECT value FROM json_each(?1))

-- name: task_remove
DELETE FROM pitboss_tasks WHERE id IN (SELECT value FROM json_each(?))
