-- name: asked_condition
-- A queue `q` that a claim asks for, and that is not paused. If it names none, it asks for all but those of which all
-- handlers are remote.
NOT q.paused AND (q.name = ANY (%(queues)s::text[]) OR (%(queues)s::text[] IS NULL AND NOT (
    EXISTS (SELECT FROM {schema}.handlers AS h WHERE h.queue = q.name AND h.remote)
    AND NOT EXISTS (SELECT FROM {schema}.handlers AS h WHERE h.queue = q.name AND NOT h.remote))))

-- name: capped_condition
-- A task with a partition key in a queue that limits how many of a key run: the end of its claim may let others start.
(keyed AND (SELECT max_per_key FROM {schema}.queues WHERE name = queue) IS NOT NULL)

-- name: queue_list
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), figures AS (
    SELECT queue, state, sum(n) AS n FROM (
        SELECT queue, state, n FROM {schema}.counts WHERE %(name)s::text IS NULL OR queue = %(name)s::text
        UNION ALL
        SELECT queue, state, n FROM {schema}.count_deltas WHERE %(name)s::text IS NULL OR queue = %(name)s::text
    ) AS parts GROUP BY queue, state HAVING sum(n) <> 0
)
SELECT name, paused, paused_by, paused_at, capacity, rate_counts, rate_spans, declared, limited, max_per_key,
    paused_reason, (
    SELECT resources FROM {schema}.handlers AS h WHERE h.queue = queues.name AND resources IS NOT NULL
    ORDER BY h.name COLLATE "C" LIMIT 1
), (
    SELECT max(oldest.at + span) FROM unnest(rate_counts, rate_spans) AS w (allowed, span), LATERAL (
        SELECT at FROM {schema}.starts WHERE queue = queues.name ORDER BY at DESC OFFSET allowed - 1 LIMIT 1
    ) AS oldest WHERE oldest.at + span > now
), (
    SELECT coalesce(json_object_agg(state, n), json_build_object())::text FROM figures WHERE queue = name
)
FROM clock, {schema}.queues WHERE %(name)s::text IS NULL OR name = %(name)s::text ORDER BY name

-- name: queue_counts
SELECT queue, state, sum(n)::bigint FROM (
    SELECT queue, state, n FROM {schema}.counts
    UNION ALL
    SELECT queue, state, n FROM {schema}.count_deltas
) AS parts GROUP BY queue, state HAVING sum(n) <> 0

-- name: queue_lock_bounded
SELECT name FROM {schema}.queues
WHERE name = ANY (%(queues)s::text[]) AND capacity IS NOT NULL
ORDER BY name FOR UPDATE

-- name: queue_lock_rated
SELECT name FROM {schema}.queues AS q
WHERE rate_counts IS NOT NULL AND {asked_condition}
ORDER BY name FOR UPDATE

-- name: queue_waiting
-- How many tasks wait in queues with a capacity.
SELECT name, capacity, (
    SELECT coalesce(sum(n), 0)::bigint FROM (
        SELECT n FROM {schema}.counts WHERE queue = name AND state IN ('held', 'scheduled', 'pending')
        UNION ALL
        SELECT n FROM {schema}.count_deltas WHERE queue = name AND state IN ('held', 'scheduled', 'pending')
    ) AS figures
) AS waiting
FROM {schema}.queues
WHERE name = ANY (%(queues)s::text[]) AND capacity IS NOT NULL
ORDER BY name

-- name: queue_windows
-- For each queue with a rate: how many tasks may start now, when the next one may, and whether a task is pending.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT q.name, now, (
    SELECT min(allowed - (
        SELECT count(*) FROM (
            SELECT FROM {schema}.starts WHERE queue = q.name AND at > now - span LIMIT allowed
        ) AS started
    )) FROM unnest(q.rate_counts, q.rate_spans) AS w (allowed, span)
) AS room, (
    SELECT max(oldest.at + span) FROM unnest(q.rate_counts, q.rate_spans) AS w (allowed, span), LATERAL (
        SELECT at FROM {schema}.starts WHERE queue = q.name ORDER BY at DESC OFFSET allowed - 1 LIMIT 1
    ) AS oldest
) AS opens_at, EXISTS (
    SELECT FROM {schema}.tasks WHERE state = 'pending' AND queue = q.name
) AS wanted
FROM clock, {schema}.queues AS q
WHERE q.rate_counts IS NOT NULL AND {asked_condition}

-- name: start_add
INSERT INTO {schema}.starts (queue, at) SELECT unnest(%(queues)s::text[]), %(now)s::bigint

-- name: start_forget
-- Starts that no window of their queue looks back to.
DELETE FROM {schema}.starts WHERE ctid = ANY (ARRAY(
    SELECT old.place FROM {schema}.queues AS q, LATERAL (
        SELECT ctid AS place FROM {schema}.starts
        WHERE queue = q.name AND at <= {now}
            - (SELECT max(span) FROM unnest(q.rate_spans) AS w (span))
        LIMIT %(limit)s::bigint
    ) AS old
    WHERE q.rate_spans IS NOT NULL
))

-- name: count_add
-- Counts that changed, and a ring for these queues and those of these pools.
WITH counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch, handler, run, at)
    SELECT queue, state, n, batch, handler, run, CASE WHEN handler IS NOT NULL THEN %(counted_at)s::bigint END
    FROM unnest(
        %(queues)s::text[], %(states)s::text[], %(numbers)s::bigint[], %(batches)s::text[], %(handlers)s::text[],
        %(runs)s::text[]
    ) AS changed (queue, state, n, batch, handler, run)
)
SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
FROM (
    SELECT string_agg(name, ',') AS names FROM (
        SELECT unnest(%(ring)s::text[]) UNION
        SELECT queue FROM {schema}.handlers WHERE resources = ANY (%(pools)s::text[])
    ) AS rung (name)
) AS all_of_them WHERE names IS NOT NULL

-- name: count_fold
-- Fold the changes into the counts. One sweep at a time: others find the lock taken and skip it.
WITH folded AS MATERIALIZED (
    DELETE FROM {schema}.count_deltas
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.count_deltas LIMIT %(limit)s::bigint))
        AND (SELECT pg_try_advisory_xact_lock(%(lock)s::bigint))
    RETURNING queue, state, n, batch, handler, run, at
), of_batches AS (
    INSERT INTO {schema}.batch_counts AS c (batch, queue, state, n)
    SELECT batch, queue, state, sum(n) FROM folded
    WHERE batch IS NOT NULL GROUP BY batch, queue, state ORDER BY batch, queue, state
    ON CONFLICT (batch, queue, state) DO UPDATE SET n = c.n + excluded.n
), told AS MATERIALIZED (
    SELECT at - at %% 10000000 AS began, queue, handler, {flow_delta_columns} FROM folded WHERE handler IS NOT NULL
), {total_place_columns}, flowed AS (
    {flow_told_changes}
)
INSERT INTO {schema}.counts AS c (queue, state, n)
SELECT queue, state, sum(n) FROM folded GROUP BY queue, state ORDER BY queue, state
ON CONFLICT (queue, state) DO UPDATE SET n = c.n + excluded.n
