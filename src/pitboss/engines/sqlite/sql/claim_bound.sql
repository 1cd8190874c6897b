-- A portion of the pending tasks of a queue that is bound to a pool, behind a place in its order.
SELECT json_group_array(json_array(
    priority, id, task, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations
))
FROM (
    SELECT
        priority, id, rowid AS task, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
        created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations
    FROM pitboss_tasks
    WHERE
        state = 'pending'
        AND queue = ?1
        AND (priority, id) > (?4, ?5)
        AND (handler NOT IN (SELECT value FROM json_each(?2)) OR expires_at <= ?3)
    ORDER BY priority, id
    LIMIT ?6
)
