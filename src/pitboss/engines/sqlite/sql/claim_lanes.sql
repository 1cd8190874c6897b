SELECT
    name,
    rate,
    (SELECT min(resources) FROM pitboss_handlers WHERE queue = pitboss_queues.name AND resources IS NOT NULL) AS pool,
    sum(CASE state WHEN 'pending' THEN n ELSE 0 END) AS pending,
    sum(CASE state WHEN 'scheduled' THEN n ELSE 0 END) AS scheduled
FROM pitboss_queues
JOIN pitboss_counts ON pitboss_counts.queue = pitboss_queues.name AND pitboss_counts.state IN ('pending', 'scheduled') AND pitboss_counts.n > 0
WHERE paused = 0
GROUP BY name
