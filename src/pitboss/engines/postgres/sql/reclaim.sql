-- name: lost_columns
-- A claim that is lost. `over`: the task ends by that.
id, claim, attempts, started_at, session, worker, claim_expires_at IS NOT NULL AS ran_out,
CASE WHEN cancel_asked THEN 'cancelled'
    WHEN claim_expires_at IS NOT NULL AND crashes + 1 >= %(most)s::bigint THEN 'failed' END AS over

-- name: lost_changes
outcome = 'lost', losses = losses + 1, crashes = crashes + ran_out::int, session = NULL, cancel_asked = false,
attempts = t.attempts + (over IS NOT NULL)::int,
started_at = CASE WHEN over IS NOT NULL THEN t.started_at END,
finished_at = CASE WHEN over IS NOT NULL THEN now END,
error = CASE WHEN over = 'failed' THEN %(error)s::text ELSE t.error END,
fingerprint = CASE WHEN over = 'failed' THEN %(fingerprint)s::text ELSE t.fingerprint END

-- name: lost_bound_condition
-- A task that must not be reclaimed before something is locked, or whose failure something may follow.
(batch IS NOT NULL OR resource IS NOT NULL OR order_key IS NOT NULL OR (
    claim_expires_at IS NOT NULL AND crashes + 1 >= %(most)s::bigint
    AND EXISTS (SELECT FROM {schema}.handlers WHERE routed)))

-- name: reclaim_orphans
-- Claims that are lost, of tasks that `lost_bound_condition` means. Last, whether the task may fail by that.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT * FROM (
    SELECT t.* FROM clock, {schema}.sessions AS s, LATERAL (
        SELECT id, batch, resource, started_at, claim, order_key, false FROM {schema}.tasks
        WHERE state = 'running' AND session = s.number AND claim_expires_at IS NULL
            AND {lost_bound_condition}
        ORDER BY claim_expires_at, id LIMIT %(limit)s::bigint
    ) AS t
    WHERE s.ended OR s.expires_at <= now
    UNION ALL
    SELECT t.* FROM clock, LATERAL (
        SELECT id, batch, resource, started_at, claim, order_key, crashes + 1 >= %(most)s::bigint FROM {schema}.tasks
        WHERE state = 'running' AND claim_expires_at <= clock.now AND {lost_bound_condition}
        ORDER BY claim_expires_at LIMIT %(limit)s
    ) AS t
) AS found ORDER BY id LIMIT %(limit)s

-- name: reclaim_lose_bound
-- As `reclaim_lose`, for claims whose batch and resource are locked. `running` are the batches that run. A task
-- that was claimed again has another resource, which is not locked: it is left to the next sweep.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), orphans AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[], %(claims)s::bigint[]) AS wanted (task, number), LATERAL (
        SELECT ctid AS place, {lost_columns}, batch IS NOT NULL AND batch <> ALL (%(running)s::text[]) AS stopped
        FROM {schema}.tasks
        WHERE id = wanted.task AND claim = wanted.number AND state = 'running'
            AND CASE WHEN claim_expires_at IS NOT NULL THEN claim_expires_at <= (SELECT now FROM clock)
                ELSE session IN (SELECT number FROM {schema}.sessions, clock WHERE ended OR expires_at <= now) END
        FOR UPDATE
    ) AS t
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = coalesce(over, CASE WHEN stopped THEN 'held' ELSE 'pending' END),
        reason = CASE WHEN over = 'failed' THEN %(poison)s::text WHEN over IS NULL AND stopped THEN 'batch'
            ELSE reason END,
        {lost_changes}
    FROM orphans AS o, clock WHERE t.ctid = o.place
    RETURNING t.queue, t.handler, t.state, t.batch, t.resource, t.partition IS NOT NULL AS keyed, o.*
), recorded AS (
    INSERT INTO {schema}.attempts (task, claim, attempt, started_at, ended_at, session, outcome, worker)
    SELECT id, claim, attempts + 1, coalesce(started_at, now), now, session, 'lost', worker
    FROM moved, clock WHERE over IS NULL
    ON CONFLICT DO NOTHING
)
SELECT id, state, queue, batch, resource, started_at, claim, {capped_condition}, handler FROM moved ORDER BY id

-- name: held_list_items
-- Items of batches that are held for a handler which is registered by now: one of these, or one that is remote or that a
-- live session knows.
SELECT t.* FROM {schema}.handlers AS h, LATERAL (
    SELECT id, batch FROM {schema}.tasks
    WHERE state = 'held' AND handler = h.name AND reason = 'handler' AND batch IS NOT NULL
    ORDER BY id LIMIT %(limit)s::bigint
) AS t
WHERE h.name = ANY (%(handlers)s::text[]) OR (%(handlers)s::text[] IS NULL AND (h.remote OR EXISTS (
    SELECT FROM {schema}.sessions AS s WHERE NOT s.ended AND h.name = ANY (s.handlers)
        AND s.expires_at > {now})))
ORDER BY t.id LIMIT %(limit)s

-- name: held_release
-- Release tasks that are held for a handler which is registered by now: one of these, or one that is remote or that a live
-- session knows. Not items of batches: their batch must be locked first.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), ready AS MATERIALIZED (
    SELECT t.place FROM {schema}.handlers AS h, LATERAL (
        SELECT ctid AS place FROM {schema}.tasks
        WHERE state = 'held' AND handler = h.name AND reason = 'handler' AND batch IS NULL
        ORDER BY id LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE h.name = ANY (%(handlers)s::text[]) OR (%(handlers)s::text[] IS NULL AND (h.remote OR EXISTS (
        SELECT FROM {schema}.sessions AS s
        WHERE NOT s.ended AND s.expires_at > (SELECT now FROM clock) AND h.name = ANY (s.handlers))))
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
