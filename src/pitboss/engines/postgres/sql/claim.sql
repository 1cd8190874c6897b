-- name: claim_candidates
-- Lock the next pending tasks of these queues, behind the last ones that were looked at. Of each queue only as many as
-- are among the first over all queues, so that no more are locked than looked at.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), wanted_queues AS MATERIALIZED (
    SELECT * FROM unnest(%(names)s::text[], %(rooms)s::bigint[], %(priorities)s::bigint[], %(ids)s::uuid[])
        AS w (name, room, last_priority, last_id)
), shares AS MATERIALIZED (
    SELECT name, count(*) AS share FROM (
        SELECT name FROM wanted_queues, LATERAL (
            SELECT priority, id FROM {schema}.tasks
            WHERE state = 'pending' AND queue = name AND (priority, id) > (last_priority, last_id)
            ORDER BY priority, id LIMIT least(room, %(wanted)s::bigint)
        ) AS head ORDER BY priority, id LIMIT %(wanted)s
    ) AS merged GROUP BY name
)
SELECT t.* FROM wanted_queues, LATERAL (
    SELECT ctid AS place, id, queue, priority, losses, want, tried, coalesce(
        expires_at <= (SELECT now FROM clock) OR handler <> ALL (%(handlers)s::text[]), false) AS odd
    FROM {schema}.tasks
    WHERE state = 'pending' AND queue = name AND (priority, id) > (last_priority, last_id)
    ORDER BY priority, id LIMIT coalesce((SELECT share FROM shares WHERE shares.name = wanted_queues.name), 0)
    FOR UPDATE SKIP LOCKED
) AS t ORDER BY t.priority, t.id

-- name: claim_take_bound
-- Start tasks that are locked, each with the resource that was found for it.
WITH found AS MATERIALIZED (
    SELECT * FROM unnest(%(places)s::tid[], %(resources)s::text[]) AS f (place, resource)
), given AS (
    UPDATE {schema}.tasks AS t SET
        state = 'running', session = %(session)s::bigint, claim = claim + 1, started_at = %(now)s::bigint,
        worker = NULL, reason = NULL, progress = NULL, note = NULL, resource = f.resource
    FROM found AS f WHERE t.ctid = f.place
    RETURNING t.id, t.claim, t.handler, t.queue, t.params, t.attempts, t.priority, t.max_attempts, t.timeout,
        t.losses, t.crashes, t.created_at, t.expires_at, t.parent, t.tags, t.batch, t.rotations
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, sign * n, batch
    FROM (SELECT queue, batch, count(*) AS n FROM given GROUP BY queue, batch) AS moved,
        (VALUES ('pending', -1), ('running', 1)) AS change (state, sign)
)
SELECT * FROM given

-- name: claim_due
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
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

-- name: claim_read
-- What these tasks are bound to. A batch is for ever; a resource lasts as long as the claim.
SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
    SELECT id, state, session, claim, batch, resource, tried, started_at FROM {schema}.tasks WHERE id = wanted.task
) AS t

-- name: claim_held
-- What claims and leases hold, by their places in the call; then the moment; then the rules of pools.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT c.place, t.resource, t.since, NULL AS rules
FROM unnest(%(claimed)s::bigint[], %(tasks)s::uuid[], %(sessions)s::bigint[], %(claims)s::bigint[])
    AS c (place, task, session, claim), clock, LATERAL (
        SELECT resource, coalesce(started_at, 0) AS since FROM {schema}.tasks
        WHERE id = c.task AND state = 'running' AND resource IS NOT NULL AND session = c.session AND claim = c.claim
            AND EXISTS (SELECT FROM {schema}.sessions WHERE number = c.session AND NOT ended AND expires_at > clock.now)
    ) AS t
UNION ALL
SELECT l.place, h.pool || '/' || h.name, h.leased_at, NULL
FROM unnest(%(leased)s::bigint[], %(leases)s::text[]) AS l (place, lease), clock, LATERAL (
    SELECT pool, name, leased_at FROM {schema}.leases WHERE id = l.lease AND expires_at > clock.now
) AS h
UNION ALL SELECT NULL, NULL, now, NULL FROM clock
UNION ALL SELECT NULL, name, NULL, rules FROM {schema}.pools WHERE name = ANY (%(pools)s::text[])
