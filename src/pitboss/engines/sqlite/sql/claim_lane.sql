SELECT
    name,
    rate,
    (SELECT min(resources) FROM pitboss_handlers WHERE queue = pitboss_queues.name AND resources IS NOT NULL) AS pool,
    coalesce((SELECT n FROM pitboss_counts WHERE queue = name AND state = 'pending'), 0) AS pending,
    coalesce((SELECT n FROM pitboss_counts WHERE queue = name AND state = 'scheduled'), 0) AS scheduled
FROM pitboss_queues
WHERE name = ? AND paused = 0
