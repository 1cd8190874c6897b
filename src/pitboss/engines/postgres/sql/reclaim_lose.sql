-- Claims of dead sessions, and those past their own time limit: `settlement.lost` has the rule. Not those that
-- `lost_bound_condition` means.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), orphans AS MATERIALIZED (
    SELECT * FROM (
        SELECT t.* FROM clock, {schema}.sessions AS s, LATERAL (
            SELECT ctid AS place, {lost_columns} FROM {schema}.tasks
            WHERE state = 'running' AND session = s.number AND claim_expires_at IS NULL
                AND NOT {lost_bound_condition}
            ORDER BY claim_expires_at, id LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
        ) AS t
        WHERE s.ended OR s.expires_at <= now
        UNION ALL
        SELECT t.* FROM clock, LATERAL (
            SELECT ctid AS place, {lost_columns} FROM {schema}.tasks
            WHERE state = 'running' AND claim_expires_at <= clock.now AND NOT {lost_bound_condition}
            ORDER BY claim_expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        ) AS t
    ) AS found LIMIT %(limit)s
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = coalesce(over, 'pending'), reason = CASE WHEN over = 'failed' THEN %(poison)s::text ELSE reason END,
        {lost_changes}
    FROM orphans AS o, clock WHERE t.ctid = o.place
    RETURNING t.queue, t.handler, t.state, t.partition IS NOT NULL AS keyed, o.*
), recorded AS (
    INSERT INTO {schema}.attempts (task, claim, attempt, started_at, ended_at, session, outcome, worker)
    SELECT id, claim, attempts + 1, coalesce(started_at, now), now, session, 'lost', worker
    FROM moved, clock WHERE over IS NULL
    ON CONFLICT DO NOTHING
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, handler, run, at)
    SELECT queue, state, count(*), handler, 'lost', (SELECT now FROM clock) FROM moved GROUP BY queue, state, handler
    UNION ALL
    SELECT queue, 'running', -count(*), NULL, NULL, NULL FROM moved GROUP BY queue
), rung AS MATERIALIZED (
    SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
    FROM (
        SELECT string_agg(DISTINCT queue, ',') AS names FROM moved WHERE state = 'pending' OR {capped_condition}
    ) AS ready WHERE names IS NOT NULL
)
SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'cancelled'),
    count(*) FILTER (WHERE state = 'failed'), array_agg(id) FILTER (WHERE claim > 100), (SELECT count(*) FROM rung)
FROM moved
