SELECT json_group_array(json_array(priority, id, task, queue, run_at))
FROM (
    SELECT priority, id, rowid AS task, queue, run_at
    FROM pitboss_tasks
    WHERE state = 'held' AND reason = 'batch' AND batch = ? AND queue = ?
    ORDER BY priority, id
    LIMIT ?
)
