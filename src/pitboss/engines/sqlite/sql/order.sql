-- name: order_taken
-- Which of these order keys have a first task in line.
SELECT json_group_array(key) FROM pitboss_order_heads WHERE key IN (SELECT value FROM json_each(?))

-- name: order_following
-- For those of these tasks that are first in line: the key, and the task that follows, if there is one.
SELECT json_group_array(json_array(
    line.key, following.rowid, following.id, following.queue, following.run_at,
    EXISTS (SELECT 1 FROM pitboss_handlers WHERE name = following.handler)
))
FROM (
    SELECT
        key,
        (
            SELECT id
            FROM pitboss_tasks
            WHERE state = 'held' AND reason = 'order' AND order_key = pitboss_order_heads.key
            ORDER BY created_at, id
            LIMIT 1
        ) AS next
    FROM pitboss_order_heads
    WHERE task IN (SELECT value FROM json_each(?))
) AS line
LEFT JOIN pitboss_tasks AS following ON following.id = line.next

-- name: order_lead
INSERT INTO pitboss_order_heads (key, task)
VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET task = excluded.task

-- name: order_end
DELETE FROM pitboss_order_heads WHERE key IN (SELECT value FROM json_each(?))

-- name: order_release
UPDATE pitboss_tasks
SET state = told.column2, reason = told.column3
FROM (
    VALUES (?, ?, ?)
) AS told
WHERE pitboss_tasks.rowid = told.column1
