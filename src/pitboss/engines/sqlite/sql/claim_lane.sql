SELECT
    name,
    rate,
    coalesce((SELECT n FROM counts WHERE queue = name AND state = 'pending'), 0) AS pending,
    coalesce((SELECT n FROM counts WHERE queue = name AND state = 'scheduled'), 0) AS scheduled
FROM queues
WHERE name = ? AND paused = 0
