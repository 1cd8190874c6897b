-- Running tasks of dead sessions become pending, or cancelled if that was asked. Not those with a batch or a resource:
-- these must be locked first.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), orphans AS MATERIALIZED (
    SELECT t.* FROM clock, {schema}.sessions AS s, LATERAL (
        SELECT ctid AS place, id, claim, attempts, started_at, session FROM {schema}.tasks
        WHERE state = 'running' AND session = s.number AND batch IS NULL AND resource IS NULL
        ORDER BY id LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE s.ended OR s.expires_at <= now
    LIMIT %(limit)s
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN t.cancel_asked THEN 'cancelled' ELSE 'pending' END,
        outcome = 'lost', losses = losses + 1, session = NULL, cancel_asked = false,
        attempts = t.attempts + t.cancel_asked::int,
        started_at = CASE WHEN t.cancel_asked THEN t.started_at END,
        finished_at = CASE WHEN t.cancel_asked THEN now END
    FROM orphans AS o, clock WHERE t.ctid = o.place
    RETURNING t.queue, t.state, o.*
), recorded AS (
    INSERT INTO {schema}.attempts (task, claim, attempt, started_at, ended_at, session, outcome)
    SELECT id, claim, attempts + 1, coalesce(started_at, now), now, session, 'lost'
    FROM moved, clock WHERE state = 'pending'
    ON CONFLICT DO NOTHING
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n)
    SELECT queue, state, count(*) FROM moved GROUP BY queue, state
    UNION ALL
    SELECT queue, 'running', -count(*) FROM moved GROUP BY queue
), rung AS MATERIALIZED (
    SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
    FROM (SELECT string_agg(DISTINCT queue, ',') AS names FROM moved WHERE state = 'pending') AS ready
    WHERE names IS NOT NULL
)
SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'cancelled'),
    array_agg(id) FILTER (WHERE claim > 100), (SELECT count(*) FROM rung)
FROM moved
