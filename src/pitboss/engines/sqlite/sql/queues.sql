-- name: queue_create
INSERT INTO pitboss_queues (name) VALUES (?) ON CONFLICT DO NOTHING

-- name: queue_write
UPDATE pitboss_queues
SET
    paused = ?2,
    paused_by = ?3,
    paused_at = ?4,
    capacity = ?5,
    rate = ?6,
    declared = ?7,
    limited = ?8,
    partition_by = ?9,
    partition_help = ?10,
    max_per_key = ?11,
    paused_reason = ?12
WHERE name = ?1

-- name: queue_give_to
-- The app that declares it.
UPDATE pitboss_queues SET app = ?2 WHERE name = ?1

-- name: queue_list_of
SELECT name FROM pitboss_queues WHERE app = ?

-- name: queue_for_put
SELECT capacity, partition_by FROM pitboss_queues WHERE name = ?

-- name: queue_help
SELECT partition_help FROM pitboss_queues WHERE name = ?

-- name: queue_get
SELECT
    name,
    paused,
    paused_by,
    paused_at,
    capacity,
    rate,
    (
        SELECT resources
        FROM pitboss_handlers AS bound
        WHERE bound.queue = pitboss_queues.name AND bound.resources IS NOT NULL
        ORDER BY bound.name
        LIMIT 1
    ) AS resources,
    declared,
    limited,
    max_per_key,
    paused_reason
FROM pitboss_queues
WHERE name = ?

-- name: queue_list
SELECT
    name,
    paused,
    paused_by,
    paused_at,
    capacity,
    rate,
    (
        SELECT resources
        FROM pitboss_handlers AS bound
        WHERE bound.queue = pitboss_queues.name AND bound.resources IS NOT NULL
        ORDER BY bound.name
        LIMIT 1
    ) AS resources,
    declared,
    limited,
    max_per_key,
    paused_reason
FROM pitboss_queues
ORDER BY name

-- name: queue_waiting
SELECT coalesce(sum(n), 0) FROM pitboss_counts WHERE queue = ? AND state IN ('held', 'scheduled', 'pending')

-- name: queue_counts
SELECT state, n FROM pitboss_counts WHERE queue = ? AND n > 0

-- name: count_add
INSERT INTO pitboss_counts (queue, state, n)
VALUES (?, ?, ?)
ON CONFLICT (queue, state) DO UPDATE SET n = n + excluded.n

-- name: count_list
SELECT queue, state, n FROM pitboss_counts WHERE n > 0

-- name: start_add
INSERT INTO pitboss_starts (queue, at, n) VALUES (?, ?, ?) ON CONFLICT (queue, at) DO UPDATE SET n = n + excluded.n

-- name: start_forget
DELETE FROM pitboss_starts WHERE queue = ? AND at <= ?

-- name: start_count
SELECT coalesce(sum(n), 0) FROM pitboss_starts WHERE queue = ? AND at > ?

-- name: start_list
SELECT at, n FROM pitboss_starts WHERE queue = ? ORDER BY at DESC
