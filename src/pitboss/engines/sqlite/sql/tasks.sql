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
    run_at = ?6,
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

-- name: task_priorities
-- The priorities of pending tasks in these queues: one step of the index for each.
WITH RECURSIVE line (queue, priority) AS (
    SELECT
        value,
        (SELECT min(priority) FROM pitboss_tasks WHERE state = 'pending' AND queue = value)
    FROM json_each(?)
    UNION ALL
    SELECT
        queue,
        (
            SELECT min(t.priority)
            FROM pitboss_tasks AS t
            WHERE t.state = 'pending' AND t.queue = line.queue AND t.priority > line.priority
        )
    FROM line
    WHERE priority IS NOT NULL
)
SELECT queue, priority FROM line WHERE priority IS NOT NULL LIMIT 101

-- name: task_unknown_handlers
-- The handlers for which tasks are held.
WITH RECURSIVE unknown (name) AS (
    SELECT min(handler) FROM pitboss_tasks INDEXED BY pitboss_tasks_unknown WHERE state = 'held' AND reason = 'handler'
    UNION ALL
    SELECT
        (
            SELECT min(handler)
            FROM pitboss_tasks INDEXED BY pitboss_tasks_unknown
            WHERE state = 'held' AND reason = 'handler' AND handler > name
        )
    FROM unknown
    WHERE name IS NOT NULL
)
SELECT name FROM unknown WHERE name IS NOT NULL LIMIT 101

-- name: failure_first
-- The first fingerprint and handler of failed tasks.
SELECT fingerprint, handler
FROM pitboss_tasks INDEXED BY pitboss_tasks_failed
WHERE state = 'failed'
ORDER BY fingerprint, handler
LIMIT 1

-- name: failure_next
-- The next ones.
SELECT * FROM (
    SELECT fingerprint, handler
    FROM pitboss_tasks INDEXED BY pitboss_tasks_failed
    WHERE state = 'failed' AND fingerprint IS ?1 AND handler > ?2
    ORDER BY handler
    LIMIT 1
)
UNION ALL
SELECT * FROM (
    SELECT fingerprint, handler
    FROM pitboss_tasks INDEXED BY pitboss_tasks_failed
    -- No text comes between these two.
    WHERE state = 'failed' AND fingerprint >= coalesce(?1 || char(1), '')
    ORDER BY fingerprint, handler
    LIMIT 1
)
LIMIT 1

-- name: failure_look
-- Of the newest tasks of a group: how many, when the first and the last of them ended, and which one is the newest.
SELECT count(*), min(finished_at), max(finished_at), max(id)
FROM (
    SELECT id, finished_at
    FROM pitboss_tasks INDEXED BY pitboss_tasks_failed
    WHERE state = 'failed' AND fingerprint IS ? AND handler = ?
    ORDER BY id DESC
    LIMIT ?
)
