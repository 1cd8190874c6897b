-- Held tasks of registered handlers may run: of these names, or else of those that a live session knows. Items of
-- batches are left to who has locked their batch.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), ready AS MATERIALIZED (
    SELECT t.place FROM {schema}.handlers AS h, LATERAL (
        SELECT ctid AS place FROM {schema}.tasks
        WHERE state = 'held' AND handler = h.name AND reason = 'handler' AND batch IS NULL
        ORDER BY id LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE h.name = ANY (%(handlers)s::text[]) OR (%(handlers)s::text[] IS NULL AND EXISTS (
        SELECT FROM {schema}.sessions AS s
        WHERE NOT s.ended AND s.expires_at > (SELECT now FROM clock) AND h.name = ANY (s.handlers)))
    LIMIT %(limit)s
), moved AS (
    UPDATE {schema}.tasks AS t
    SET state = CASE WHEN run_at > (SELECT now FROM clock) THEN 'scheduled' ELSE 'pending' END, reason = NULL
    FROM ready WHERE t.ctid = ready.place
    RETURNING t.queue, t.state
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n)
    SELECT queue, state, count(*) FROM moved GROUP BY queue, state
    UNION ALL
    SELECT queue, 'held', -count(*) FROM moved GROUP BY queue
), rung AS MATERIALIZED (
    SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
    FROM (SELECT string_agg(DISTINCT queue, ',') AS names FROM moved WHERE state = 'pending') AS ready
    WHERE names IS NOT NULL
)
SELECT count(*), (SELECT count(*) FROM rung) FROM moved
