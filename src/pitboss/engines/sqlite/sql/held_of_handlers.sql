SELECT json_group_array(json_array(task, queue, state, batch))
FROM (
    SELECT
        pitboss_tasks.rowid AS task,
        pitboss_tasks.queue AS queue,
        pitboss_tasks.batch AS batch,
        CASE
            WHEN (SELECT status FROM pitboss_batches WHERE id = pitboss_tasks.batch) <> 'running' THEN 'held'
            WHEN pitboss_tasks.run_at > ?2 THEN 'scheduled'
            ELSE 'pending'
        END AS state
    FROM pitboss_tasks
    WHERE
        pitboss_tasks.state = 'held'
        AND pitboss_tasks.handler IN (SELECT value FROM json_each(?1))
        AND pitboss_tasks.reason = 'handler'
    LIMIT ?3
)
