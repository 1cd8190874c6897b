-- The open queues of a claim that may need resources or have partitions, and what must come before the claim. Items are
-- `drawable` in queues without partitions. For each queue: what it says of partitions, its pool, how many of its members
-- are ready, and whether its first task is expired or for another session (NULL: no task).
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), open_queues AS MATERIALIZED (
    SELECT q.name, (
        SELECT resources FROM {schema}.handlers AS h WHERE h.queue = q.name AND resources IS NOT NULL
        ORDER BY h.name COLLATE "C" LIMIT 1
    ) AS pool, q.rate_counts IS NOT NULL AS rated, q.helped, q.max_per_key
    FROM {schema}.queues AS q
    WHERE {asked_condition}
), pools AS MATERIALIZED (
    SELECT w.pool, EXISTS (
        SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'away' AND available_at <= now
    ) AS returning, (
        SELECT count(*) FROM (
            SELECT FROM {schema}.resources AS r
            WHERE r.pool = w.pool AND stage = 'ready' LIMIT greatest(1, %(wanted)s::bigint)
        ) AS first
    ) AS ready
    FROM clock, (SELECT DISTINCT pool FROM open_queues WHERE pool IS NOT NULL) AS w
)
SELECT now, EXISTS (
    SELECT FROM {schema}.sessions WHERE number = %(session)s::bigint AND NOT ended AND expires_at > now
), (
    SELECT bool_or(due) FROM open_queues AS q, LATERAL (
        SELECT true AS due FROM {schema}.tasks
        WHERE state = 'scheduled' AND queue = q.name AND run_at <= now LIMIT 1
    ) AS falling
), (
    SELECT min(run_at) FROM open_queues AS q, LATERAL (
        SELECT run_at FROM {schema}.tasks
        WHERE state = 'scheduled' AND queue = q.name AND run_at > now ORDER BY run_at LIMIT 1
    ) AS soonest
), %(draw)s::boolean AND EXISTS (
    SELECT FROM {schema}.batches AS b, open_queues AS q, LATERAL (
        SELECT FROM {schema}.tasks
        WHERE state = 'held' AND batch = b.id AND reason = 'batch' AND queue = q.name LIMIT 1
    ) AS held WHERE b.status = 'running' AND q.helped IS NULL
), q.name, q.rated, q.helped, q.max_per_key, q.pool, pools.returning, pools.ready, (
    SELECT coalesce(expires_at <= now OR handler <> ALL (%(handlers)s::text[]), false) FROM {schema}.tasks
    WHERE state = 'pending' AND queue = q.name AND {only_condition} ORDER BY priority, id LIMIT 1
)
FROM clock LEFT JOIN open_queues AS q ON true LEFT JOIN pools ON pools.pool = q.pool
ORDER BY q.name
