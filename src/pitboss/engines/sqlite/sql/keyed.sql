-- name: claim_look
-- A portion of the pending tasks of a queue after the rank (?2, ?3), with the owners of their keys.
SELECT json_group_array(json_array(
    partition, owner, moving, priority, id, task, handler, expires_at, run_at, created_at, attempts, batch, want, tried,
    unique_key
))
FROM (
    SELECT
        first.partition, own.owner, own.moving_to IS NOT NULL AS moving, first.priority, first.id, first.rowid AS task,
        first.handler, first.expires_at, first.run_at, first.created_at, first.attempts, first.batch, first.want,
        first.tried, first.unique_key
    FROM pitboss_tasks AS first
    LEFT JOIN pitboss_partitions AS own ON own.queue = ?1 AND own.key = first.partition
    WHERE first.state = 'pending' AND first.queue = ?1 AND (first.priority, first.id) > (?2, ?3)
    ORDER BY first.priority, first.id
    LIMIT ?4
)

-- name: claim_own_keys
-- Keys of a slot that have pending tasks behind the rank (?4, ?5), after the key ?3.
SELECT json_group_array(key)
FROM (
    SELECT key
    FROM pitboss_partitions AS own
    WHERE
        own.moving_to IS NULL
        AND own.queue = ?1
        AND own.owner = ?2
        AND own.key > ?3
        AND EXISTS (
            SELECT 1
            FROM pitboss_tasks AS task
            WHERE task.state = 'pending' AND task.queue = ?1 AND task.partition = own.key AND (task.priority, task.id) > (?4, ?5)
        )
    ORDER BY own.key
    LIMIT ?6
)

-- name: claim_look_key
-- A portion of the pending tasks of a key after the rank (?3, ?4). The owner is known.
SELECT json_group_array(json_array(
    partition, NULL, 0, priority, id, task, handler, expires_at, run_at, created_at, attempts, batch, want, tried,
    unique_key
))
FROM (
    SELECT
        partition, priority, id, rowid AS task, handler, expires_at, run_at, created_at, attempts, batch, want, tried,
        unique_key
    FROM pitboss_tasks
    WHERE state = 'pending' AND queue = ?1 AND partition = ?2 AND (priority, id) > (?3, ?4)
    ORDER BY priority, id
    LIMIT ?5
)

-- name: draw_pending
-- How many items of a batch are pending in a queue, by key.
SELECT json_group_array(json_array(partition, owner, moving, n))
FROM (
    SELECT item.partition, own.owner, own.moving_to IS NOT NULL AS moving, item.n
    FROM (
        SELECT partition, count(*) AS n
        FROM pitboss_tasks
        WHERE state = 'pending' AND batch = ?1 AND queue = ?2 AND partition IS NOT NULL
        GROUP BY partition
    ) AS item
    LEFT JOIN pitboss_partitions AS own ON own.queue = ?2 AND own.key = item.partition
)

-- name: draw_look
-- A portion of the items of a batch that wait to be drawn in a queue, after the rank (?3, ?4).
SELECT json_group_array(json_array(
    partition, owner, moving, priority, id, task, handler, expires_at, run_at, created_at, attempts, batch, want, tried,
    unique_key
))
FROM (
    SELECT
        first.partition, own.owner, own.moving_to IS NOT NULL AS moving, first.priority, first.id, first.rowid AS task,
        first.handler, first.expires_at, first.run_at, first.created_at, first.attempts, first.batch, first.want,
        first.tried, first.unique_key
    FROM pitboss_tasks AS first
    LEFT JOIN pitboss_partitions AS own ON own.queue = ?2 AND own.key = first.partition
    WHERE
        first.state = 'held'
        AND first.reason = 'batch'
        AND first.batch = ?1
        AND first.queue = ?2
        AND (first.priority, first.id) > (?3, ?4)
    ORDER BY first.priority, first.id
    LIMIT ?5
)

-- name: draw_own
-- Of each key of the slot ?6 the first ?5 items behind the rank (?3, ?4).
SELECT json_group_array(json_array(
    item.partition, own.owner, 0, item.priority, item.id, item.rowid, item.handler, item.expires_at, item.run_at,
    item.created_at, item.attempts, item.batch, item.want, item.tried, item.unique_key
))
FROM pitboss_partitions AS own INDEXED BY pitboss_partitions_owned
CROSS JOIN pitboss_tasks AS item
WHERE
    own.moving_to IS NULL
    AND own.queue = ?2
    AND own.owner = ?6
    AND item.rowid IN (
        SELECT next.rowid
        FROM pitboss_tasks AS next
        WHERE
            next.state = 'held'
            AND next.reason = 'batch'
            AND next.batch = ?1
            AND next.queue = ?2
            AND next.partition = own.key
            AND (next.priority, next.id) > (?3, ?4)
        ORDER BY next.priority, next.id
        LIMIT ?5
    )

-- name: draw_all
-- The same of all keys: it hops from one key that has items to the next.
WITH RECURSIVE seen (key) AS (
    SELECT min(partition)
    FROM pitboss_tasks
    WHERE state = 'held' AND reason = 'batch' AND batch = ?1 AND queue = ?2 AND partition IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(task.partition)
        FROM pitboss_tasks AS task
        WHERE task.state = 'held' AND task.reason = 'batch' AND task.batch = ?1 AND task.queue = ?2 AND task.partition > seen.key
    )
    FROM seen
    WHERE seen.key IS NOT NULL
)

SELECT json_group_array(json_array(
    item.partition, own.owner, own.moving_to IS NOT NULL, item.priority, item.id, item.rowid, item.handler,
    item.expires_at, item.run_at, item.created_at, item.attempts, item.batch, item.want, item.tried, item.unique_key
))
FROM seen
CROSS JOIN pitboss_tasks AS item
LEFT JOIN pitboss_partitions AS own ON own.queue = ?2 AND own.key = seen.key
WHERE
    item.rowid IN (
        SELECT next.rowid
        FROM pitboss_tasks AS next
        WHERE
            next.state = 'held'
            AND next.reason = 'batch'
            AND next.batch = ?1
            AND next.queue = ?2
            AND next.partition = seen.key
            AND (next.priority, next.id) > (?3, ?4)
        ORDER BY next.priority, next.id
        LIMIT ?5
    )
