-- name: put_handler
-- Whether new tasks are refused, and whether the handler is registered: one statement for both.
SELECT refusing, EXISTS (SELECT 1 FROM pitboss_handlers WHERE name = ?) FROM pitboss_leader

-- name: put_plain
INSERT INTO pitboss_tasks (id, handler, queue, priority, created_at, params, state)
VALUES (?, ?, ?, ?, ?, ?, 'pending')

-- name: put_marked
-- Tasks of events and schedules.
INSERT INTO pitboss_tasks (id, handler, queue, priority, created_at, params, meta, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')

-- name: put_keyed
-- Tasks with a partition key.
INSERT INTO pitboss_tasks (id, handler, queue, priority, created_at, params, meta, partition, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending')

-- name: put_full
INSERT INTO pitboss_tasks (
    id, handler, queue, priority, created_at, params,
    state, reason, run_at, max_attempts, timeout, expires_at, unique_key, tags, parent, batch, want, by_wall,
    order_key, meta, partition
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_met_ids
SELECT json_group_array(json_array(id, state, reason)) FROM pitboss_tasks WHERE id IN (SELECT value FROM json_each(?))

-- name: put_met_keys
SELECT json_group_array(json_array(pitboss_uniques.key, pitboss_tasks.id, pitboss_tasks.state, pitboss_tasks.reason))
FROM pitboss_uniques
JOIN pitboss_tasks ON pitboss_tasks.id = pitboss_uniques.task
WHERE pitboss_uniques.key IN (SELECT value FROM json_each(?1)) AND (pitboss_uniques.until IS NULL OR pitboss_uniques.until > ?2)
