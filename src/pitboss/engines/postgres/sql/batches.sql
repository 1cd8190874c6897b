-- name: batch_list
-- These batches, or the first ones of these statuses in the order of the list: with a slot, queued, paused, ended.
SELECT id, name, lane, status, data, by, rank, created_at, started_at, finished_at, reason, on_complete, run
FROM {schema}.batches
WHERE (%(ids)s::text[] IS NULL OR id = ANY (%(ids)s::text[]))
    AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
ORDER BY CASE WHEN status IN ('running', 'pausing', 'cancelling') THEN 0 WHEN status = 'queued' THEN 1
    WHEN status = 'paused' THEN 2 ELSE 3 END,
    CASE WHEN finished_at IS NULL THEN lane END, CASE WHEN finished_at IS NULL THEN rank END,
    CASE WHEN finished_at IS NULL THEN id END, finished_at DESC, id DESC
LIMIT %(limit)s::bigint

-- name: batch_create
INSERT INTO {schema}.batches (id, rank, unfinished, created_at, status, lane, name, data, by, on_complete)
VALUES (%(id)s::text, %(rank)s::bigint, 0, %(now)s::bigint, %(status)s::text, %(lane)s::text, %(name)s::text,
    %(data)s::text, %(by)s::text, %(on_complete)s::text)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: batch_write
UPDATE {schema}.batches SET status = %(status)s::text, rank = %(rank)s::bigint, started_at = %(started_at)s::bigint,
    finished_at = %(finished_at)s::bigint, reason = %(reason)s::text, run = %(run)s::bigint
WHERE id = %(id)s::text

-- name: batch_rank
UPDATE {schema}.batches AS b SET rank = r.rank
FROM unnest(%(ids)s::text[], %(ranks)s::bigint[]) AS r (id, rank) WHERE b.id = r.id

-- name: batch_remove
WITH figures AS (DELETE FROM {schema}.batch_counts WHERE batch = %(batch)s::text)
DELETE FROM {schema}.batches WHERE id = %(batch)s::text

-- name: batch_get
SELECT id, lane, status, unfinished FROM {schema}.batches WHERE id = ANY (%(ids)s::text[])

-- name: batch_lock
SELECT id, lane, status, unfinished, rank, started_at, reason, on_complete, run
FROM {schema}.batches WHERE id = ANY (%(ids)s::text[]) ORDER BY id FOR UPDATE

-- name: batch_count_unfinished
-- Change the number of unfinished items, which is counted under the batch's lock.
UPDATE {schema}.batches AS b SET unfinished = b.unfinished + c.change
FROM unnest(%(ids)s::text[], %(changes)s::bigint[]) AS c (id, change) WHERE b.id = c.id
RETURNING b.id, b.unfinished

-- name: batch_check
-- Whether items of these batches run, and whether any have failed.
SELECT id, EXISTS (
    SELECT FROM {schema}.tasks WHERE batch = b.id AND state = 'running'
), EXISTS (
    SELECT FROM {schema}.tasks WHERE batch = b.id AND state = 'failed'
) FROM unnest(%(ids)s::text[]) AS b (id)

-- name: batch_count_list
SELECT batch, queue, state, sum(n)::bigint FROM (
    SELECT batch, queue, state, n FROM {schema}.batch_counts WHERE batch = ANY (%(ids)s::text[])
    UNION ALL
    SELECT batch, queue, state, n FROM {schema}.count_deltas WHERE batch = ANY (%(ids)s::text[])
) AS parts GROUP BY batch, queue, state HAVING sum(n) <> 0

-- name: batch_count_remove
-- Its counts still count for its queues.
UPDATE {schema}.count_deltas SET batch = NULL WHERE batch = %(batch)s::text

-- name: batch_recent
SELECT b.id, (
    SELECT count(*) FROM {schema}.tasks
    WHERE batch = b.id AND state IN ('completed', 'failed', 'cancelled') AND finished_at >= b.since
) FROM unnest(%(ids)s::text[], %(since)s::bigint[]) AS b (id, since)

-- name: batch_items
-- Items of a batch, the finished ones first.
SELECT id FROM {schema}.tasks WHERE batch = %(batch)s::text
ORDER BY state NOT IN ('completed', 'failed', 'cancelled'), id LIMIT %(limit)s::bigint FOR UPDATE

-- name: batch_open_items
-- Unfinished items of a batch that were not asked to stop yet, the oldest first.
SELECT id FROM (
    SELECT id, cancel_asked FROM {schema}.tasks WHERE batch = %(batch)s::text AND state = 'held'
    UNION ALL
    SELECT id, cancel_asked FROM {schema}.tasks
    WHERE batch = %(batch)s::text AND state IN ('pending', 'scheduled', 'running')
) AS items WHERE NOT cancel_asked ORDER BY id LIMIT %(limit)s::bigint

-- name: batch_lock_items
SELECT id FROM {schema}.tasks
WHERE id = ANY (%(ids)s::uuid[]) AND state IN ('held', 'pending', 'scheduled', 'running') AND NOT cancel_asked
ORDER BY id FOR UPDATE

-- name: batch_requeueable
SELECT id, unique_key FROM {schema}.tasks
WHERE batch = %(batch)s::text AND ((state = 'cancelled' AND %(cancelled)s::boolean) OR (state = 'failed' AND (
    %(error)s::text IS NULL OR fingerprint = %(error)s::text
    OR error::json ->> 'category' = %(error)s::text OR error::json ->> 'type' = %(error)s::text)))
ORDER BY id LIMIT %(limit)s::bigint FOR UPDATE

-- name: batch_hold
-- Hold the items that were drawn and have not started. Waits for claims that are about to take one.
WITH drawn AS MATERIALIZED (
    SELECT ctid AS place, state AS was FROM {schema}.tasks
    WHERE batch = %(batch)s::text AND state IN ('pending', 'scheduled') ORDER BY id FOR UPDATE
), moved AS (
    UPDATE {schema}.tasks AS t SET state = 'held', reason = 'batch'
    FROM drawn WHERE t.ctid = drawn.place RETURNING t.queue, was
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, was, -count(*), %(batch)s::text FROM moved GROUP BY queue, was
    UNION ALL
    SELECT queue, 'held', count(*), %(batch)s::text FROM moved GROUP BY queue
)
SELECT count(*) FROM moved

-- name: drawn_condition
-- A queue `q` of a claim whose slots ask for all queues, and for these by name.
({asked_condition} OR (NOT q.paused AND q.name = ANY (%(besides)s::text[])))

-- name: batch_draw_open
-- Lock the running batches that have items to draw for these queues, if the session that claims is alive.
SELECT id FROM {schema}.batches AS b WHERE status = 'running' AND EXISTS (
    SELECT FROM {schema}.queues AS q, LATERAL (
        SELECT FROM {schema}.tasks
        WHERE state = 'held' AND batch = b.id AND reason = 'batch' AND queue = q.name LIMIT 1
    ) AS held
    WHERE {drawn_condition} AND key_names IS NULL
) AND EXISTS (
    SELECT FROM {schema}.sessions WHERE number = %(session)s::bigint AND NOT ended
        AND expires_at > {now}
) ORDER BY id FOR UPDATE

-- name: lane_list
SELECT l.name, max_running, count(b.id) FILTER (WHERE b.status IN ('running', 'pausing', 'cancelling')),
    count(b.id) FILTER (WHERE b.status = 'queued')
FROM {schema}.lanes AS l LEFT JOIN {schema}.batches AS b
    ON b.lane = l.name AND b.status NOT IN ('cancelled', 'done', 'done_with_errors')
WHERE %(name)s::text IS NULL OR l.name = %(name)s::text
GROUP BY l.name, max_running ORDER BY l.name

-- name: lane_set
INSERT INTO {schema}.lanes (name, max_running) VALUES (%(name)s::text, %(max_running)s::bigint)
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running

-- name: lane_create
INSERT INTO {schema}.lanes (name) VALUES (%(name)s::text) ON CONFLICT (name) DO NOTHING

-- name: lane_lock
SELECT name FROM {schema}.lanes WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE

-- name: lane_max_running
SELECT max_running FROM {schema}.lanes WHERE name = %(lane)s::text

-- name: lane_line
-- The batches of a lane that have not ended.
SELECT rank, id, status FROM {schema}.batches
WHERE lane = %(lane)s::text AND status NOT IN ('cancelled', 'done', 'done_with_errors')
