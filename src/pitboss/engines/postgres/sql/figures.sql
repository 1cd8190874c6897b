-- name: flow_columns
span, at, queue, handler, put, completed, failed, cancelled, retried, lost, revived

-- name: flow_kind_columns
put, completed, failed, cancelled, retried, lost, revived

-- name: flow_delta_columns
-- What a change of counts with a handler tells: that tasks came to this state, and what became of runs.
CASE WHEN run = 'put' THEN n ELSE 0 END AS put, CASE WHEN state = 'completed' THEN n ELSE 0 END AS completed,
CASE WHEN state = 'failed' THEN n ELSE 0 END AS failed, CASE WHEN state = 'cancelled' THEN n ELSE 0 END AS cancelled,
CASE WHEN run = 'retried' THEN n ELSE 0 END AS retried, CASE WHEN run = 'lost' THEN n ELSE 0 END AS lost,
CASE WHEN run = 'revived' THEN n ELSE 0 END AS revived

-- name: total_place_columns
-- Under which names the pairs of queue and handler that are told count in the totals, which are rows of a bucket without
-- an end: `totals.Places`, with OWN_HANDLERS and OWN_QUEUES.
known AS MATERIALIZED (
    SELECT queue, handler FROM {schema}.flows WHERE span = 0 AND handler <> '(others)'
), fresh AS (
    SELECT queue, handler, queue IN (SELECT queue FROM known) AS has_queue
    FROM (SELECT queue, handler FROM told EXCEPT SELECT queue, handler FROM known) AS new_ones
), fresh_queues AS (
    SELECT queue, row_number() OVER (ORDER BY queue COLLATE "C") AS place
    FROM (SELECT DISTINCT queue FROM fresh WHERE NOT has_queue) AS new_queues
), allowed AS (
    SELECT queue, handler, row_number() OVER (ORDER BY queue COLLATE "C", handler COLLATE "C") AS place
    FROM fresh LEFT JOIN fresh_queues AS q USING (queue)
    WHERE has_queue OR q.place <= 30 - (SELECT count(DISTINCT queue) FROM known)
), own AS (
    SELECT queue, handler FROM known
    UNION ALL SELECT queue, handler FROM allowed WHERE place <= 80 - (SELECT count(*) FROM known)
), places AS (
    SELECT queue, handler,
        CASE WHEN queue IN (SELECT queue FROM own) THEN queue ELSE '(others)' END AS total_queue,
        CASE WHEN (queue, handler) IN (SELECT queue, handler FROM own) THEN handler ELSE '(others)' END AS total_handler
    FROM (SELECT DISTINCT queue, handler FROM told) AS pairs
)

-- name: flow_told_changes
-- In this order, so that two that fold do not wait for each other.
INSERT INTO {schema}.flows AS f ({flow_columns})
SELECT 10000000, began, queue, handler, {flow_sum_columns} FROM told GROUP BY began, queue, handler
UNION ALL
SELECT 0, 0, total_queue, total_handler, {flow_sum_columns}
FROM told JOIN places USING (queue, handler) GROUP BY total_queue, total_handler
ORDER BY 1, 2, 3, 4
ON CONFLICT (span, at, queue, handler) DO UPDATE SET {flow_added_changes}

-- name: flow_sum_columns
sum(put)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, sum(retried)::bigint,
sum(lost)::bigint, sum(revived)::bigint

-- name: flow_added_changes
put = f.put + excluded.put, completed = f.completed + excluded.completed, failed = f.failed + excluded.failed,
cancelled = f.cancelled + excluded.cancelled, retried = f.retried + excluded.retried, lost = f.lost + excluded.lost,
revived = f.revived + excluded.revived

-- name: run_columns
-- What a settled run counts as in the flows, besides the end of its task.
CASE WHEN flags & 2 > 0 THEN 'lost' WHEN NOT over AND flags & 1 > 0 THEN 'retried' END

-- name: flow_list
-- Folded and not folded yet. `by_handler`: handlers are told apart.
SELECT at - at %% %(span)s::bigint, queue COLLATE "C",
    CASE WHEN %(by_handler)s::boolean THEN handler ELSE '' END COLLATE "C", {flow_sum_columns}
FROM (
    SELECT at, queue, handler, {flow_kind_columns} FROM {schema}.flows
    WHERE span IN (10000000, 60000000, 3600000000) AND at >= %(since)s::bigint AND at < %(until)s::bigint
    UNION ALL
    SELECT at - at %% 10000000, queue, handler, {flow_delta_columns} FROM {schema}.count_deltas
    WHERE handler IS NOT NULL AND at - at %% 10000000 >= %(since)s AND at - at %% 10000000 < %(until)s
) AS all_of_them
WHERE (%(queue)s::text IS NULL OR queue = %(queue)s) AND (%(handler)s::text IS NULL OR handler = %(handler)s)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3

-- name: total_list
-- Folded and not folded yet.
WITH told AS MATERIALIZED (
    SELECT queue, handler, {flow_delta_columns} FROM {schema}.count_deltas WHERE handler IS NOT NULL
), {total_place_columns}
SELECT 0, queue COLLATE "C", handler COLLATE "C", {flow_sum_columns}
FROM (
    SELECT queue, handler, {flow_kind_columns} FROM {schema}.flows WHERE span = 0
    UNION ALL
    SELECT total_queue, total_handler, {flow_kind_columns} FROM told JOIN places USING (queue, handler)
) AS all_of_them
GROUP BY 2, 3 ORDER BY 2, 3

-- name: total_measured
-- The total of all samples.
SELECT body FROM {schema}.samples WHERE span = 0 AND at = 0 AND session = 0

-- name: total_begin
INSERT INTO {schema}.samples (span, at, session, body) VALUES (0, 0, 0, '{}') ON CONFLICT DO NOTHING

-- name: total_lock
SELECT body FROM {schema}.samples WHERE span = 0 AND at = 0 AND session = 0 FOR UPDATE

-- name: total_write
UPDATE {schema}.samples SET body = %(body)s::text WHERE span = 0 AND at = 0 AND session = 0

-- name: flow_oldest
SELECT min(at) FROM {schema}.flows WHERE span = %(span)s::bigint

-- name: flow_take
-- In the order in which a fold adds to them.
WITH found AS MATERIALIZED (
    SELECT ctid AS place FROM {schema}.flows
    WHERE span = %(span)s::bigint AND at >= %(since)s::bigint AND at < %(until)s::bigint
    ORDER BY at, queue, handler FOR UPDATE
)
DELETE FROM {schema}.flows AS f USING found WHERE f.ctid = found.place
RETURNING at, queue, handler, {flow_kind_columns}

-- name: flow_add
INSERT INTO {schema}.flows AS f ({flow_columns})
SELECT * FROM unnest(
    %(spans)s::bigint[], %(ats)s::bigint[], %(queues)s::text[], %(handlers)s::text[], %(puts)s::bigint[],
    %(completeds)s::bigint[], %(faileds)s::bigint[], %(cancelleds)s::bigint[], %(retrieds)s::bigint[],
    %(losts)s::bigint[], %(reviveds)s::bigint[]
) ON CONFLICT (span, at, queue, handler) DO UPDATE SET {flow_added_changes}

-- name: sample_add
INSERT INTO {schema}.samples (span, at, session, body)
SELECT * FROM unnest(%(spans)s::bigint[], %(ats)s::bigint[], %(sessions)s::bigint[], %(bodies)s::text[])
ON CONFLICT DO NOTHING RETURNING span, at, session

-- name: sample_write
INSERT INTO {schema}.samples (span, at, session, body)
SELECT * FROM unnest(%(spans)s::bigint[], %(ats)s::bigint[], %(sessions)s::bigint[], %(bodies)s::text[])
ON CONFLICT (span, at, session) DO UPDATE SET body = excluded.body

-- name: sample_remove
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT span, at, session
    FROM unnest(%(spans)s::bigint[], %(ats)s::bigint[], %(sessions)s::bigint[]) AS w (span, at, session)
), found AS MATERIALIZED (
    SELECT s.place FROM wanted AS w, LATERAL (
        SELECT ctid AS place FROM {schema}.samples WHERE span = w.span AND at = w.at AND session = w.session FOR UPDATE
    ) AS s
), gone AS (
    DELETE FROM {schema}.samples AS s USING found
    WHERE s.ctid = found.place AND (SELECT count(*) FROM found) = (SELECT count(*) FROM wanted)
)
SELECT (SELECT count(*) FROM found) = (SELECT count(*) FROM wanted)

-- name: sample_list
SELECT body FROM {schema}.samples
WHERE span = %(span)s::bigint AND at >= %(since)s::bigint AND at < %(until)s::bigint
ORDER BY at, session LIMIT %(limit)s::bigint

-- name: sample_list_newest
SELECT body FROM {schema}.samples
WHERE span = %(span)s::bigint AND at >= %(since)s::bigint AND at < %(until)s::bigint
ORDER BY at DESC, session DESC LIMIT %(limit)s::bigint
