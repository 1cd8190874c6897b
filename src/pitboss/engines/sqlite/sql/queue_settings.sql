SELECT
    name,
    paused,
    paused_by,
    paused_at,
    capacity,
    rate,
    (
        SELECT resources
        FROM pitboss_handlers AS bound
        WHERE bound.queue = pitboss_queues.name AND bound.resources IS NOT NULL
        ORDER BY bound.name
        LIMIT 1
    ) AS resources
FROM pitboss_queues
WHERE name = ?
