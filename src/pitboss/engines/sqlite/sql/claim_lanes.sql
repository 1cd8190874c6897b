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
    sum(CASE state WHEN 'pending' THEN n ELSE 0 END) AS pending,
    sum(CASE state WHEN 'scheduled' THEN n ELSE 0 END) AS scheduled
FROM pitboss_queues
JOIN pitboss_counts ON pitboss_counts.queue = pitboss_queues.name AND pitboss_counts.state IN ('pending', 'scheduled') AND pitboss_counts.n > 0
WHERE paused = 0
GROUP BY name
