SELECT
    priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations
FROM pitboss_tasks
WHERE
    state = 'pending'
    AND queue = ?1
    AND (handler NOT IN (SELECT value FROM json_each(?2)) OR expires_at <= ?3)
ORDER BY priority, id
