-- name: claim_columns
t.id, t.claim, t.handler, t.queue, t.params, t.attempts, t.priority, t.max_attempts, t.timeout, t.losses, t.crashes,
t.created_at, t.expires_at, t.parent, t.tags, t.batch, t.rotations, t.meta, t.run_at

-- name: only_condition
-- A task of a slot that wants only these handlers. Expired ones of others are cancelled where they are met.
(%(only)s::text[] IS NULL OR handler = ANY (%(only)s::text[]) OR expires_at <= (SELECT now FROM clock))

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
                AND {only_condition}
            ORDER BY priority, id LIMIT least(room, %(wanted)s::bigint)
        ) AS head ORDER BY priority, id LIMIT %(wanted)s
    ) AS merged GROUP BY name
)
SELECT t.* FROM wanted_queues, LATERAL (
    SELECT ctid AS place, id, queue, priority, losses, want, tried, coalesce(
        expires_at <= (SELECT now FROM clock) OR handler <> ALL (%(handlers)s::text[]), false) AS odd,
        created_at, attempts
    FROM {schema}.tasks
    WHERE state = 'pending' AND queue = name AND (priority, id) > (last_priority, last_id) AND {only_condition}
    ORDER BY priority, id LIMIT coalesce((SELECT share FROM shares WHERE shares.name = wanted_queues.name), 0)
    FOR UPDATE SKIP LOCKED
) AS t ORDER BY t.priority, t.id

-- name: claim_take_bound
-- Start tasks that are locked, each with the resource that was found for it, and with its worker and key.
WITH found AS MATERIALIZED (
    SELECT * FROM unnest(%(places)s::tid[], %(resources)s::text[], %(workers)s::text[], %(keys)s::text[])
        AS f (place, resource, worker, key)
), given AS (
    UPDATE {schema}.tasks AS t SET
        state = 'running', session = %(session)s::bigint, claim = claim + 1, started_at = %(now)s::bigint,
        worker = f.worker, reason = NULL, progress = NULL, note = NULL, resource = f.resource,
        claim_lasts = %(lasts)s::bigint, claim_expires_at = %(now)s::bigint + %(lasts)s::bigint, claim_key = f.key
    FROM found AS f WHERE t.ctid = f.place
    RETURNING {claim_columns}
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, sign * n, batch
    FROM (SELECT queue, batch, count(*) AS n FROM given GROUP BY queue, batch) AS moved,
        (VALUES ('pending', -1), ('running', 1)) AS change (state, sign)
)
SELECT * FROM given

-- name: claim_lock_keys
-- A request that is repeated while the first one is under way waits for it.
SELECT pg_advisory_xact_lock(sign) FROM (
    SELECT DISTINCT hashtextextended(%(channel)s::text || ' claim ' || key, 0) AS sign
    FROM unnest(%(keys)s::text[]) AS k (key) ORDER BY 1
) AS signs

-- name: claim_again
-- The claims under these keys that still run.
SELECT t.claim_key, t.session, t.started_at, t.claim_expires_at, {claim_columns}
FROM unnest(%(keys)s::text[]) AS k (key), LATERAL (
    SELECT * FROM {schema}.tasks
    WHERE claim_key = k.key AND state = 'running' AND claim_expires_at > {now}
) AS t ORDER BY t.id

-- name: claim_due
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), due AS MATERIALIZED (
    SELECT t.place FROM {schema}.queues AS q, LATERAL (
        SELECT ctid AS place FROM {schema}.tasks
        WHERE state = 'scheduled' AND queue = q.name AND run_at <= (SELECT now FROM clock)
        ORDER BY run_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE {asked_condition}
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
-- What these tasks are bound to. A batch and an order key are for ever; a resource lasts as long as the claim.
SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
    SELECT id, state, session, claim, batch, resource, tried, started_at, order_key FROM {schema}.tasks
    WHERE id = wanted.task
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
