SELECT id FROM {schema}.batches AS b WHERE status = 'running' AND EXISTS (
    SELECT FROM {schema}.queues AS q, LATERAL (
        SELECT FROM {schema}.tasks
        WHERE state = 'held' AND batch = b.id AND reason = 'batch' AND queue = q.name LIMIT 1
    ) AS held
    WHERE NOT q.paused AND (%(queues)s::text[] IS NULL OR q.name = ANY (%(queues)s::text[]))
) ORDER BY id FOR UPDATE
