-- Running batches with items to draw for these queues, if the session that claims is alive.
SELECT id FROM {schema}.batches AS b WHERE status = 'running' AND EXISTS (
    SELECT FROM {schema}.queues AS q, LATERAL (
        SELECT FROM {schema}.tasks
        WHERE state = 'held' AND batch = b.id AND reason = 'batch' AND queue = q.name LIMIT 1
    ) AS held
    WHERE NOT q.paused AND (%(queues)s::text[] IS NULL OR q.name = ANY (%(queues)s::text[]))
) AND EXISTS (
    SELECT FROM {schema}.sessions WHERE number = %(session)s::bigint AND NOT ended
        AND expires_at > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
) ORDER BY id FOR UPDATE
