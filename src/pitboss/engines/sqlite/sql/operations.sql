-- name: operation_add
INSERT OR IGNORE INTO pitboss_operations (id, status, body) VALUES (?, 'running', ?)

-- name: operation_get
SELECT body FROM pitboss_operations WHERE id = ?

-- name: operation_write
UPDATE pitboss_operations SET status = ?2, ended_at = ?3, body = ?4 WHERE id = ?1

-- name: operation_list_named
SELECT body FROM pitboss_operations WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id DESC

-- name: operation_list
SELECT body FROM pitboss_operations ORDER BY id DESC LIMIT ?

-- name: operation_list_of
SELECT body FROM pitboss_operations WHERE status = ? ORDER BY id DESC LIMIT ?

-- name: operation_failed
-- How many of its tasks have failed again, counted up to a number. The condition is that of the index, word for word.
SELECT count(*) FROM (
    SELECT 1 FROM pitboss_tasks INDEXED BY pitboss_tasks_failed_again
    WHERE operation = ? AND attempts > 0 AND state <> 'completed' AND state <> 'cancelled'
    LIMIT ?
)

-- name: operation_stay
-- Those of these tasks that are still there.
SELECT id FROM pitboss_tasks WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id

-- name: operation_forget
DELETE FROM pitboss_operations
WHERE id IN (SELECT id FROM pitboss_operations WHERE ended_at < ? LIMIT ?)
