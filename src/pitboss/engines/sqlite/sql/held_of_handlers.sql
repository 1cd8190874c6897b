SELECT json_group_array(json_array(task, queue, state))
FROM (
    SELECT
        tasks.rowid AS task,
        tasks.queue AS queue,
        CASE WHEN tasks.run_at > ?2 THEN 'scheduled' ELSE 'pending' END AS state
    FROM tasks
    WHERE
        tasks.state = 'held'
        AND tasks.handler IN (SELECT value FROM json_each(?1))
        AND tasks.reason = 'handler'
    LIMIT ?3
)
