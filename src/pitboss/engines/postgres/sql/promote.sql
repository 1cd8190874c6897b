WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), due AS MATERIALIZED (
    SELECT t.place FROM {schema}.queues AS q, LATERAL (
        SELECT ctid AS place FROM {schema}.tasks
        WHERE state = 'scheduled' AND queue = q.name AND run_at <= (SELECT now FROM clock)
        ORDER BY run_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE NOT q.paused AND (%(queues)s::text[] IS NULL OR q.name = ANY (%(queues)s::text[]))
), moved AS (
    UPDATE {schema}.tasks AS t SET state = 'pending' FROM due WHERE t.ctid = due.place RETURNING t.queue, t.batch
), tally AS MATERIALIZED (
    SELECT queue, batch, count(*) AS n FROM moved GROUP BY queue, batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, sign * n, batch FROM tally, (VALUES ('scheduled', -1), ('pending', 1)) AS change (state, sign)
)
SELECT coalesce(sum(n), 0)::bigint FROM tally
