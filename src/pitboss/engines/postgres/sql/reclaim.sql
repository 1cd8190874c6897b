-- name: reclaim_orphans
-- Running tasks of dead sessions that have a batch or a resource.
SELECT t.* FROM {schema}.sessions AS s, LATERAL (
    SELECT id, batch, resource, started_at, claim FROM {schema}.tasks
    WHERE state = 'running' AND session = s.number AND (batch IS NOT NULL OR resource IS NOT NULL)
    ORDER BY id LIMIT %(limit)s::bigint
) AS t
WHERE s.ended OR s.expires_at <= {now}
ORDER BY t.id LIMIT %(limit)s

-- name: reclaim_lose_bound
-- As `reclaim_lose`, for claims whose batch and resource are locked. `running` are the batches that run. A task
-- that was claimed again has another resource, which is not locked: it is left to the next sweep.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), orphans AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[], %(claims)s::bigint[]) AS wanted (task, number), LATERAL (
        SELECT ctid AS place, id, claim, attempts, started_at, session FROM {schema}.tasks
        WHERE id = wanted.task AND claim = wanted.number AND state = 'running' AND session IN (
            SELECT number FROM {schema}.sessions, clock WHERE ended OR expires_at <= now
        ) FOR UPDATE
    ) AS t
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN t.cancel_asked THEN 'cancelled'
            WHEN batch IS NOT NULL AND batch <> ALL (%(running)s::text[]) THEN 'held' ELSE 'pending' END,
        reason = CASE WHEN NOT t.cancel_asked AND batch IS NOT NULL AND batch <> ALL (%(running)s::text[]) THEN 'batch'
            ELSE reason END,
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

-- name: held_list_items
-- Items of batches that are held for a handler which is registered by now: one of these, or one that a live session
-- knows.
SELECT t.* FROM {schema}.handlers AS h, LATERAL (
    SELECT id, batch FROM {schema}.tasks
    WHERE state = 'held' AND handler = h.name AND reason = 'handler' AND batch IS NOT NULL
    ORDER BY id LIMIT %(limit)s::bigint
) AS t
WHERE h.name = ANY (%(handlers)s::text[]) OR (%(handlers)s::text[] IS NULL AND EXISTS (
    SELECT FROM {schema}.sessions AS s WHERE NOT s.ended AND h.name = ANY (s.handlers)
        AND s.expires_at > {now}))
ORDER BY t.id LIMIT %(limit)s

-- name: held_release
-- Release tasks that are held for a handler which is registered by now: one of these, or one that a live session knows.
-- Not items of batches: their batch must be locked first.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
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

-- name: held_release_items
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), ready AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
        SELECT ctid AS place FROM {schema}.tasks
        WHERE id = wanted.task AND state = 'held' AND reason = 'handler' FOR UPDATE
    ) AS t
)
UPDATE {schema}.tasks AS t SET
    state = CASE WHEN batch <> ALL (%(running)s::text[]) THEN 'held'
        WHEN run_at > (SELECT now FROM clock) THEN 'scheduled' ELSE 'pending' END,
    reason = CASE WHEN batch <> ALL (%(running)s::text[]) THEN 'batch' END
FROM ready WHERE t.ctid = ready.place
RETURNING t.queue, t.state, t.batch
