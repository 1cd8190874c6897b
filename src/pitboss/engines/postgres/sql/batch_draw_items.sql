-- Make items of each of these locked batches pending until `wanted` of them are, in queues without partitions.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), open_queues AS MATERIALIZED (
    SELECT name FROM {schema}.queues AS q WHERE {drawn_condition} AND key_names IS NULL
), enough AS MATERIALIZED (
    -- Draw more where no member may fit some of them.
    SELECT b.id, %(wanted)s::bigint + CASE WHEN EXISTS (
        SELECT FROM open_queues WHERE EXISTS (
            SELECT FROM {schema}.handlers AS h WHERE h.queue = open_queues.name AND h.resources IS NOT NULL
        ) AND EXISTS (SELECT FROM {schema}.tasks WHERE state = 'held' AND batch = b.id AND queue = open_queues.name)
    ) THEN %(beyond)s::bigint ELSE 0 END AS n FROM unnest(%(ids)s::text[]) AS b (id)
), short AS MATERIALIZED (
    SELECT b.id, greatest(0, b.n - (
        SELECT coalesce(sum(few.n), 0) FROM open_queues, LATERAL (
            SELECT count(*) AS n FROM (
                SELECT FROM {schema}.tasks
                WHERE batch = b.id AND state = 'pending' AND queue = open_queues.name LIMIT b.n
            ) AS first
        ) AS few
    ))::bigint AS missing FROM enough AS b
), found AS MATERIALIZED (
    SELECT short.id, missing, t.place, t.number FROM short, LATERAL (
        SELECT place, row_number() OVER (ORDER BY priority, task) AS number FROM open_queues, LATERAL (
            SELECT ctid AS place, priority, id AS task FROM {schema}.tasks
            WHERE state = 'held' AND batch = short.id AND reason = 'batch' AND queue = open_queues.name
            ORDER BY priority, id LIMIT missing + 1
        ) AS head ORDER BY priority, task LIMIT missing + 1
    ) AS t
), moved AS (
    UPDATE {schema}.tasks AS t
    SET state = CASE WHEN run_at > (SELECT now FROM clock) THEN 'scheduled' ELSE 'pending' END, reason = NULL
    FROM found WHERE t.ctid = found.place AND number <= missing
    RETURNING t.queue, t.state, t.batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, count(*), batch FROM moved GROUP BY queue, state, batch
    UNION ALL
    SELECT queue, 'held', -count(*), batch FROM moved GROUP BY queue, batch
)
SELECT count(state), count(*) FILTER (WHERE state = 'pending'), EXISTS (SELECT FROM found WHERE number > missing), now
FROM clock LEFT JOIN moved ON true GROUP BY now
