SELECT
    name,
    rate,
    sum(CASE state WHEN 'pending' THEN n ELSE 0 END) AS pending,
    sum(CASE state WHEN 'scheduled' THEN n ELSE 0 END) AS scheduled
FROM queues
JOIN counts ON counts.queue = queues.name AND counts.state IN ('pending', 'scheduled') AND counts.n > 0
WHERE paused = 0
GROUP BY name
