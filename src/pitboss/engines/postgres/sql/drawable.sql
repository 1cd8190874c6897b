-- Whether a claim on these queues has items of running batches to draw first.
SELECT EXISTS (
    SELECT FROM {schema}.sessions WHERE number = %(session)s::bigint AND NOT ended
        AND expires_at > coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
), EXISTS (
    SELECT FROM {schema}.batches AS b, {schema}.queues AS q, LATERAL (
        SELECT FROM {schema}.tasks
        WHERE state = 'held' AND batch = b.id AND reason = 'batch' AND queue = q.name LIMIT 1
    ) AS held
    WHERE b.status = 'running' AND NOT q.paused
        AND (%(queues)s::text[] IS NULL OR q.name = ANY (%(queues)s::text[]))
)
