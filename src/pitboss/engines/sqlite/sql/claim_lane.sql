SELECT
    name,
    rate,
    (
        SELECT resources
        FROM pitboss_handlers AS bound
        WHERE bound.queue = pitboss_queues.name AND bound.resources IS NOT NULL
        ORDER BY bound.name
        LIMIT 1
    ) AS pool,
    coalesce((SELECT n FROM pitboss_counts WHERE queue = name AND state = 'pending'), 0) AS pending,
    coalesce((SELECT n FROM pitboss_counts WHERE queue = name AND state = 'scheduled'), 0) AS scheduled
FROM pitboss_queues
WHERE name = ? AND paused = 0
