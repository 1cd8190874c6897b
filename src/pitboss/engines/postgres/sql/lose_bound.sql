-- As `lose`, for claims whose batch and resource are locked. `running` are the batches that run. Another claim of the same
-- task has another resource, which is not locked: it is left to the next sweep.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), orphans AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[], %(claims)s::bigint[]) AS wanted (task, number), LATERAL (
        SELECT ctid AS place, id, claim, attempts, started_at, session FROM {schema}.tasks
        WHERE id = wanted.task AND claim = wanted.number AND state = 'running' AND session IN (
            SELECT number FROM {schema}.sessions, clock WHERE ended OR expires_at <= now
        ) FOR UPDATE
    ) AS t
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN t.cancel_asked THEN 'cancelled' WHEN batch IS NOT NULL AND batch <> ALL (%(running)s::text[]) THEN 'held'
            ELSE 'pending' END,
        reason = CASE WHEN NOT t.cancel_asked AND batch IS NOT NULL AND batch <> ALL (%(running)s::text[]) THEN 'batch' ELSE reason END,
        outcome = 'lost', losses = losses + 1, session = NULL, cancel_asked = false,
        attempts = t.attempts + t.cancel_asked::int,
        started_at = CASE WHEN t.cancel_asked THEN t.started_at END,
        finished_at = CASE WHEN t.cancel_asked THEN now END
    FROM orphans AS o, clock WHERE t.ctid = o.place
    RETURNING t.queue, t.state, t.batch, t.resource, o.*
), recorded AS (
    INSERT INTO {schema}.attempts (task, claim, attempt, started_at, ended_at, session, outcome)
    SELECT id, claim, attempts + 1, coalesce(started_at, now), now, session, 'lost'
    FROM moved, clock WHERE state <> 'cancelled'
    ON CONFLICT DO NOTHING
)
SELECT id, state, queue, batch, resource, started_at, claim FROM moved ORDER BY id
