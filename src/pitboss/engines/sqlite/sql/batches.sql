-- name: batch_create
INSERT INTO pitboss_batches (id, name, lane, status, rank, made_by, created_at, data, on_complete)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: batch_write
UPDATE pitboss_batches SET status = ?2, rank = ?3, started_at = ?4, finished_at = ?5, reason = ?6, run = ?7
WHERE id = ?1

-- name: batch_rank
UPDATE pitboss_batches SET rank = ?2 WHERE id = ?1

-- name: batch_remove
DELETE FROM pitboss_batches WHERE id = ?

-- name: batch_get
SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete, run
FROM pitboss_batches
WHERE id = ?

-- name: batch_list_named
SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete, run
FROM pitboss_batches
WHERE id IN (SELECT value FROM json_each(?))

-- name: batch_list_live
SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete, run
FROM pitboss_batches
WHERE status IN (SELECT value FROM json_each(?))

-- name: batch_list_ended
SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete, run
FROM pitboss_batches
WHERE finished_at IS NOT NULL AND +status IN (SELECT value FROM json_each(?))
ORDER BY finished_at DESC, id DESC
LIMIT ?

-- name: batch_list_cancelling
SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete, run
FROM pitboss_batches
WHERE status = 'cancelling'

-- name: batch_statuses
SELECT id, status FROM pitboss_batches WHERE id IN (SELECT value FROM json_each(?))

-- name: batch_next
-- The queued batches of a lane that have a slot now, in their order.
SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete, run
FROM pitboss_batches
WHERE status = 'queued' AND lane = ?1
ORDER BY rank, id
LIMIT max(
    0,
    (SELECT max_running FROM pitboss_lanes WHERE name = ?1)
    - (SELECT count(*) FROM pitboss_batches WHERE lane = ?1 AND status IN ('running', 'pausing', 'cancelling'))
)

-- name: batch_last_rank
SELECT max(rank) FROM pitboss_batches WHERE finished_at IS NULL AND lane = ?

-- name: batch_count_add
INSERT INTO pitboss_batch_counts (batch, queue, state, n)
VALUES (?, ?, ?, ?)
ON CONFLICT (batch, queue, state) DO UPDATE SET n = n + excluded.n

-- name: batch_count_states
SELECT state, sum(n) FROM pitboss_batch_counts WHERE batch = ? GROUP BY state HAVING sum(n) > 0

-- name: batch_count_list
SELECT queue, state, n FROM pitboss_batch_counts WHERE batch = ? AND n > 0

-- name: batch_count_remove
DELETE FROM pitboss_batch_counts WHERE batch = ?

-- name: batch_queues
SELECT queue FROM pitboss_batch_counts WHERE batch = ? GROUP BY queue HAVING sum(n) > 0 ORDER BY queue

-- name: batch_drawn
SELECT queue, count(*) AS n FROM pitboss_tasks WHERE batch = ? AND state = ? GROUP BY queue

-- name: batch_hold
UPDATE pitboss_tasks SET state = 'held', reason = 'batch' WHERE batch = ? AND state = ?

-- name: batch_recent
SELECT count(*) FROM pitboss_tasks WHERE finished_at IS NOT NULL AND batch = ? AND finished_at >= ?

-- name: batch_draw_open
-- Open queues in which running batches have items that are not drawn, or that wait.
SELECT
    pitboss_batches.id AS batch,
    pitboss_batch_counts.queue AS queue,
    sum(CASE pitboss_batch_counts.state WHEN 'held' THEN pitboss_batch_counts.n ELSE 0 END) AS held,
    sum(CASE pitboss_batch_counts.state WHEN 'pending' THEN pitboss_batch_counts.n ELSE 0 END) AS pending,
    EXISTS (
        SELECT 1 FROM pitboss_handlers AS binding
        WHERE binding.queue = pitboss_batch_counts.queue AND binding.resources IS NOT NULL
    ) AS bound,
    coalesce((SELECT min(remote) FROM pitboss_handlers AS known WHERE known.queue = pitboss_batch_counts.queue), 0) AS remote
FROM pitboss_batches
JOIN pitboss_batch_counts
    ON pitboss_batch_counts.batch = pitboss_batches.id AND pitboss_batch_counts.state IN ('held', 'pending')
JOIN pitboss_queues ON pitboss_queues.name = pitboss_batch_counts.queue AND pitboss_queues.paused = 0
WHERE pitboss_batches.status = 'running'
GROUP BY pitboss_batches.id, pitboss_batch_counts.queue

-- name: batch_draw_items
SELECT json_group_array(json_array(priority, id, task, queue, run_at))
FROM (
    SELECT priority, id, rowid AS task, queue, run_at
    FROM pitboss_tasks
    WHERE state = 'held' AND reason = 'batch' AND batch = ? AND queue = ?
    ORDER BY priority, id
    LIMIT ?
)

-- name: lane_create
INSERT INTO pitboss_lanes (name, max_running) VALUES (?, 1) ON CONFLICT DO NOTHING

-- name: lane_set
INSERT OR REPLACE INTO pitboss_lanes (name, max_running) VALUES (?, ?)

-- name: lane_list
SELECT name, max_running FROM pitboss_lanes ORDER BY name

-- name: lane_counts
SELECT lane, status, count(*) AS n FROM pitboss_batches WHERE finished_at IS NULL GROUP BY lane, status

-- name: lane_list_queued
SELECT DISTINCT lane FROM pitboss_batches WHERE status = 'queued'

-- name: lane_line
SELECT rank, id, status FROM pitboss_batches WHERE finished_at IS NULL AND lane = ? ORDER BY rank, id
