SELECT
    name,
    paused,
    paused_by,
    paused_at,
    capacity,
    rate,
    (SELECT min(resources) FROM pitboss_handlers WHERE queue = pitboss_queues.name AND resources IS NOT NULL) AS resources
FROM pitboss_queues
WHERE name = ?
