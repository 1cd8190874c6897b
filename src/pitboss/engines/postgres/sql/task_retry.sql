-- `running` are the batches that run. Items of others are held, and so are tasks behind the first one with their order
-- key, which is locked.
WITH found AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
        SELECT ctid AS place, id, state AS was, claim, attempts AS attempt, outcome, started_at, finished_at, session,
            worker, error, CASE WHEN batch IS NOT NULL AND batch <> ALL (%(running)s::text[]) THEN 'batch'
                WHEN order_key IS NOT NULL
                    AND (SELECT task FROM {schema}.order_heads WHERE key = order_key) <> id THEN 'order'
                WHEN handler <> ALL (ARRAY(SELECT name FROM {schema}.handlers)) THEN 'handler' END AS held
        FROM {schema}.tasks WHERE id = wanted.task
    ) AS t
), recorded AS (
    INSERT INTO {schema}.attempts (task, claim, attempt, started_at, ended_at, session, outcome, worker, error)
    SELECT id, claim, attempt, started_at, finished_at, session, coalesce(outcome, ''), worker, error
    FROM found WHERE started_at IS NOT NULL AND finished_at IS NOT NULL
    ON CONFLICT DO NOTHING
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN held IS NULL THEN 'pending' ELSE 'held' END, reason = held, tried = NULL, rotations = 0,
        run_at = {now}, expires_at = NULL, started_at = NULL, finished_at = NULL, result = NULL,
        attempts = CASE WHEN %(keep)s::boolean THEN attempts ELSE 0 END,
        losses = CASE WHEN %(keep)s::boolean THEN losses ELSE 0 END,
        crashes = CASE WHEN %(keep)s::boolean THEN crashes ELSE 0 END,
        operation = %(operation)s::text
    FROM found WHERE t.ctid = found.place
    RETURNING t.queue, t.handler, t.state, was, t.batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch, handler, run, at)
    SELECT queue, state, count(*), batch, handler, 'revived', {now} FROM moved GROUP BY queue, state, batch, handler
    UNION ALL
    SELECT queue, was, -count(*), batch, NULL, NULL, NULL FROM moved GROUP BY queue, was, batch
), rung AS MATERIALIZED (
    SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
    FROM (SELECT string_agg(DISTINCT queue, ',') AS names FROM moved WHERE state = 'pending') AS ready
    WHERE names IS NOT NULL
)
SELECT batch, count(*), (SELECT count(*) FROM rung) FROM moved GROUP BY batch
