-- name: partition_add
INSERT INTO pitboss_partitions (queue, key) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: partition_list
SELECT queue, key, owner, moving_to, epoch, pinned FROM pitboss_partitions WHERE queue = ? ORDER BY key

-- name: partition_list_named
-- With whether a task of the key runs.
SELECT
    queue, key, owner, moving_to, epoch, pinned,
    EXISTS (
        SELECT 1 FROM pitboss_tasks AS task
        WHERE task.state = 'running' AND task.queue = pitboss_partitions.queue AND task.partition = pitboss_partitions.key
    ) AS running
FROM pitboss_partitions
WHERE queue = ?1 AND key IN (SELECT value FROM json_each(?2))

-- name: partition_list_moving
-- The same for keys that are on their way to another slot.
SELECT
    queue, key, owner, moving_to, epoch, pinned,
    EXISTS (
        SELECT 1 FROM pitboss_tasks AS task
        WHERE task.state = 'running' AND task.queue = pitboss_partitions.queue AND task.partition = pitboss_partitions.key
    ) AS running
FROM pitboss_partitions INDEXED BY pitboss_partitions_moving
WHERE queue = ? AND moving_to IS NOT NULL

-- name: partition_write
INSERT INTO pitboss_partitions (queue, key, owner, moving_to, epoch, pinned)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, key) DO UPDATE
SET owner = excluded.owner, moving_to = excluded.moving_to, epoch = excluded.epoch, pinned = excluded.pinned

-- name: partition_running
SELECT partition, count(*)
FROM pitboss_tasks
WHERE state = 'running' AND queue = ? AND partition IS NOT NULL
GROUP BY partition

-- name: partition_counts
-- The unfinished tasks of each key of a queue.
SELECT partition, 'held' AS state, count(*) AS n
FROM pitboss_tasks
WHERE state = 'held' AND queue = ?1 AND partition IS NOT NULL
GROUP BY partition
UNION ALL
SELECT partition, 'scheduled' AS state, count(*) AS n
FROM pitboss_tasks
WHERE state = 'scheduled' AND queue = ?1 AND partition IS NOT NULL
GROUP BY partition
UNION ALL
SELECT partition, 'pending' AS state, count(*) AS n
FROM pitboss_tasks
WHERE state = 'pending' AND queue = ?1 AND partition IS NOT NULL
GROUP BY partition
UNION ALL
SELECT partition, 'running' AS state, count(*) AS n
FROM pitboss_tasks
WHERE state = 'running' AND queue = ?1 AND partition IS NOT NULL
GROUP BY partition

-- name: partition_counts_of
-- Those of one key.
SELECT 'held' AS state, count(*) AS n FROM pitboss_tasks WHERE state = 'held' AND queue = ?1 AND partition = ?2
UNION ALL
SELECT 'scheduled' AS state, count(*) AS n FROM pitboss_tasks WHERE state = 'scheduled' AND queue = ?1 AND partition = ?2
UNION ALL
SELECT 'pending' AS state, count(*) AS n FROM pitboss_tasks WHERE state = 'pending' AND queue = ?1 AND partition = ?2
UNION ALL
SELECT 'running' AS state, count(*) AS n FROM pitboss_tasks WHERE state = 'running' AND queue = ?1 AND partition = ?2

-- name: slot_list
-- Each with its session, if that is still known.
SELECT
    pool, pitboss_slots.number, node, place, queues,
    pitboss_sessions.number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM pitboss_slots
JOIN pitboss_sessions ON pitboss_sessions.number = pitboss_slots.session
ORDER BY pool, pitboss_slots.number

-- name: slot_list_of
SELECT pool, number FROM pitboss_slots WHERE session = ?

-- name: slot_write
INSERT INTO pitboss_slots (pool, number, node, place, session, queues) VALUES (?, ?, ?, ?, ?, ?)

-- name: slot_forget
-- All slots of a pool but these.
DELETE FROM pitboss_slots WHERE pool = ?1 AND number NOT IN (SELECT value FROM json_each(?2))
