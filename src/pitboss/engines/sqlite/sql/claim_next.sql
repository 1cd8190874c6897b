SELECT json_group_array(json_array(
    priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations
))
FROM (
    SELECT
        priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
        created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations
    FROM pitboss_tasks
    WHERE state = 'pending' AND queue = ?
    ORDER BY priority, id
    LIMIT ?
)
