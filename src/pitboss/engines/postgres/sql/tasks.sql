-- name: task_columns
id, handler, queue, state, params, priority, created_at, run_at, attempts, max_attempts, timeout, expires_at,
unique_key, tags, parent, reason, progress, note, result, error, outcome, session, claim, worker, started_at,
finished_at, losses, crashes, cancel_asked, batch, want, resource, tried, rotations, claim_lasts, claim_expires_at,
claim_key, order_key, meta, partition

-- name: task_get
SELECT {task_columns} FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
    SELECT * FROM {schema}.tasks WHERE id = wanted.task
) AS t

-- name: task_find
-- The matching ones of the candidates that are looked at, with the last of these and the next candidate, unless the page
-- is full. A candidate is only compared when it is needed. The planner must not know how many candidates there may be, or
-- it would prefer to read and sort all of them.
WITH page AS MATERIALIZED (
    SELECT {task_columns} FROM (
        SELECT id AS task, place FROM ({candidates}) AS ranges ORDER BY id {order} LIMIT (SELECT %s::bigint)
    ) AS looked, LATERAL (
        SELECT * FROM {schema}.tasks WHERE ctid = place OFFSET 0
    ) AS t
    WHERE ({condition}) ORDER BY task {order} LIMIT %s
), ends AS (
    SELECT array_agg(id::text) AS ids FROM (
        SELECT id FROM ({candidates}) AS ranges ORDER BY id {order} OFFSET (SELECT %s::bigint) LIMIT 2
    ) AS two
    WHERE (SELECT count(*) FROM page) <= %s
)
SELECT ends.ids, page.* FROM ends LEFT JOIN page ON true ORDER BY page.id {order}

-- name: task_count
SELECT count(*), count(*) FILTER (WHERE matched) FROM (SELECT matched FROM ({candidates}) AS ranges LIMIT %s) AS looked

-- name: task_priorities
-- The priorities of pending tasks in these queues: one step of the index for each.
WITH RECURSIVE line AS (
    SELECT queue, (
        SELECT min(priority) FROM {schema}.tasks AS t WHERE state = 'pending' AND t.queue = asked.queue
    ) AS priority FROM unnest(%(queues)s::text[]) AS asked (queue)
    UNION ALL
    SELECT queue, (
        SELECT min(t.priority) FROM {schema}.tasks AS t
        WHERE t.state = 'pending' AND t.queue = line.queue AND t.priority > line.priority
    ) FROM line WHERE priority IS NOT NULL
)
SELECT queue, priority FROM line WHERE priority IS NOT NULL LIMIT 101

-- name: task_unknown_handlers
-- The handlers for which tasks are held.
WITH RECURSIVE unknown (name) AS (
    SELECT min(handler) FROM {schema}.tasks WHERE state = 'held' AND reason = 'handler'
    UNION ALL
    SELECT (
        SELECT min(handler) FROM {schema}.tasks WHERE state = 'held' AND reason = 'handler' AND handler > name
    ) FROM unknown WHERE name IS NOT NULL
)
SELECT name FROM unknown WHERE name IS NOT NULL LIMIT 101

-- name: failure_groups
-- The fingerprints and handlers of failed tasks: one step of the index for each.
WITH RECURSIVE known (fingerprint, handler) AS ({failure_groups_condition})
SELECT fingerprint, handler FROM known

-- name: failure_groups_condition
(
    SELECT fingerprint, handler FROM {schema}.tasks WHERE state = 'failed' ORDER BY fingerprint, handler LIMIT 1
)
UNION ALL
SELECT following.fingerprint, following.handler FROM known, LATERAL (
    SELECT * FROM (
        SELECT fingerprint, handler FROM {schema}.tasks
        WHERE state = 'failed' AND fingerprint = known.fingerprint AND handler > known.handler
        ORDER BY handler LIMIT 1
    ) AS beside
    UNION ALL
    SELECT * FROM (
        SELECT fingerprint, handler FROM {schema}.tasks
        WHERE state = 'failed' AND fingerprint > known.fingerprint ORDER BY fingerprint, handler LIMIT 1
    ) AS after
    UNION ALL
    SELECT * FROM (
        SELECT fingerprint, handler FROM {schema}.tasks
        WHERE state = 'failed' AND fingerprint IS NULL
            AND handler > CASE WHEN known.fingerprint IS NULL THEN known.handler ELSE '' END
        -- Only one index is in this order.
        ORDER BY fingerprint, handler LIMIT 1
    ) AS without
    LIMIT 1
) AS following

-- name: failure_list
-- Of the newest tasks of each group: how many, when the first and the last of them ended, and which one is the newest.
WITH RECURSIVE known (fingerprint, handler) AS ({failure_groups_condition})
SELECT fingerprint, handler, looked.* FROM known, LATERAL (
    SELECT count(*), min(finished_at), max(finished_at), max(id::text COLLATE "C") FROM (
        SELECT id, finished_at FROM {schema}.tasks AS t
        WHERE state = 'failed' AND t.fingerprint = known.fingerprint AND t.handler = known.handler
        ORDER BY id DESC LIMIT %(most)s::bigint
    ) AS newest
    HAVING known.fingerprint IS NOT NULL
    UNION ALL
    SELECT count(*), min(finished_at), max(finished_at), max(id::text COLLATE "C") FROM (
        SELECT id, finished_at FROM {schema}.tasks AS t
        WHERE state = 'failed' AND t.fingerprint IS NULL AND known.fingerprint IS NULL AND t.handler = known.handler
        ORDER BY fingerprint DESC, handler DESC, id DESC LIMIT %(most)s::bigint
    ) AS newest
    HAVING known.fingerprint IS NULL
) AS looked

-- name: task_cancellable
SELECT id, batch, order_key FROM {schema}.tasks
WHERE (state = 'pending' OR state = 'scheduled' OR state = 'held' OR state = 'running')
    AND NOT cancel_asked AND ({condition})
ORDER BY id LIMIT %s

-- name: task_before
-- How many stand before a pending task in its queue, at most `limit`; no row if it is not pending.
SELECT (SELECT count(*) FROM (
    SELECT FROM {schema}.tasks AS other
    WHERE other.queue = one.queue AND other.state = 'pending' AND (other.priority, other.id) < (one.priority, one.id)
    LIMIT %(limit)s::bigint
) AS found)
FROM {schema}.tasks AS one WHERE one.id = %(id)s::uuid AND one.state = 'pending'

-- name: task_lock_changeable
-- The waiting tasks that differ from what they would be.
SELECT id FROM {schema}.tasks
WHERE (state = 'pending' OR state = 'scheduled' OR state = 'held') AND ({condition})
    AND (
        priority <> coalesce(%s::bigint, priority) OR NOT coalesce(tags, '{}') @> %s::text[]
        OR coalesce(tags, '{}') && %s::text[]
    )
ORDER BY id LIMIT %s FOR UPDATE

-- name: task_change
UPDATE {schema}.tasks AS t SET
    priority = coalesce(%(priority)s::bigint, priority),
    tags = ARRAY(SELECT tag FROM unnest(t.tags) WITH ORDINALITY AS had (tag, place)
        WHERE tag <> ALL (%(untag)s::text[]) ORDER BY place)
        || ARRAY(SELECT tag FROM unnest(%(tag)s::text[]) WITH ORDINALITY AS new (tag, place)
            WHERE tag <> ALL (coalesce(t.tags, '{}')) ORDER BY place)
WHERE id = ANY (%(ids)s::uuid[])

-- name: task_lock_cancellable
SELECT id FROM {schema}.tasks
WHERE (state = 'pending' OR state = 'scheduled' OR state = 'held' OR state = 'running')
    AND NOT cancel_asked AND ({condition}) AND id = ANY (%s::uuid[])
ORDER BY id FOR UPDATE

-- name: task_lock_expired
SELECT id FROM {schema}.tasks
WHERE id = ANY (%(ids)s::uuid[]) AND state = 'pending' AND expires_at <= {now}
ORDER BY id FOR UPDATE

-- name: task_cancel
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), found AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
        SELECT ctid AS place, queue AS its_queue, state AS was FROM {schema}.tasks WHERE id = wanted.task
    ) AS t
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN was = 'running' THEN 'running' ELSE 'cancelled' END,
        cancel_asked = was = 'running',
        reason = %(reason)s::text,
        finished_at = CASE WHEN was = 'running' THEN finished_at ELSE now END
    FROM found, clock WHERE t.ctid = found.place
    RETURNING its_queue, was, t.batch, t.handler
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch, handler, at)
    SELECT its_queue, was, -count(*), batch, NULL, NULL FROM moved WHERE was <> 'running' GROUP BY its_queue, was, batch
    UNION ALL
    SELECT its_queue, 'cancelled', count(*), batch, handler, (SELECT now FROM clock)
    FROM moved WHERE was <> 'running' GROUP BY its_queue, batch, handler
)
SELECT batch, count(*) FILTER (WHERE was <> 'running'), count(*) FILTER (WHERE was = 'running')
FROM moved GROUP BY batch

-- name: task_retryable
SELECT id, batch, order_key FROM {schema}.tasks
WHERE state IN ('failed', 'cancelled') AND ({condition})
ORDER BY id LIMIT %s

-- name: task_lock_retryable
SELECT id, unique_key FROM {schema}.tasks
WHERE state IN ('failed', 'cancelled') AND ({condition}) AND id = ANY (%s::uuid[])
ORDER BY id FOR UPDATE

-- name: task_prunable
SELECT id FROM {schema}.tasks AS t
WHERE state IN ('completed', 'failed', 'cancelled') AND finished_at IS NOT NULL AND batch IS NULL
    AND finished_at < coalesce(%s::bigint, 9223372036854775807)
    AND (unique_key IS NULL OR (
        SELECT true FROM {schema}.uniques AS u WHERE u.key = t.unique_key AND u.task = t.id AND u.until > %s::bigint
    ) IS NULL)
    AND ({condition})
ORDER BY id LIMIT %s FOR UPDATE

-- name: task_remove
WITH found AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
        SELECT ctid AS place, id, unique_key FROM {schema}.tasks WHERE id = wanted.task
    ) AS t
), runs AS (
    DELETE FROM {schema}.attempts WHERE task = ANY (%(ids)s::uuid[])
), keys AS MATERIALIZED (
    SELECT u.place FROM (SELECT id, unique_key FROM found WHERE unique_key IS NOT NULL ORDER BY unique_key) AS f,
    LATERAL (
        SELECT ctid AS place FROM {schema}.uniques WHERE key = f.unique_key AND task = f.id FOR UPDATE
    ) AS u
), freed AS (
    DELETE FROM {schema}.uniques AS u USING keys WHERE u.ctid = keys.place
), gone AS (
    DELETE FROM {schema}.tasks AS t USING found WHERE t.ctid = found.place RETURNING t.queue, t.state, t.batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, -count(*), batch FROM gone GROUP BY queue, state, batch
)
SELECT count(*), count(*) FILTER (WHERE state NOT IN ('completed', 'failed', 'cancelled')) FROM gone

-- name: put_met
-- The task that each new task meets: the same id, or the task that has its key now.
SELECT asked.place, met.id, met.state, met.reason
FROM unnest(%(ids)s::uuid[], %(keys)s::text[]) WITH ORDINALITY AS asked (id, key, place)
CROSS JOIN LATERAL (
    SELECT 0 AS rank, id, state, reason FROM {schema}.tasks WHERE id = asked.id
    UNION ALL
    SELECT 1, holder.id, holder.state, holder.reason
    FROM {schema}.uniques, LATERAL (SELECT id, state, reason FROM {schema}.tasks WHERE id = task) AS holder
    WHERE key = asked.key
        AND CASE WHEN until IS NULL THEN holder.state NOT IN ('completed', 'failed', 'cancelled')
            ELSE until > {now} END
    ORDER BY rank LIMIT 1
) AS met
