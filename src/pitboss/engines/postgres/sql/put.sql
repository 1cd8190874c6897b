-- Create tasks. Only those that have an order key, which is locked, or meta pay for these (`and_more`). Nothing is
-- created if a queue has a capacity and is not locked, or if new tasks are refused and these do not follow from
-- something: `open` is false then. `divided`: a queue has partitions, so that its tasks get keys.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), known AS MATERIALIZED (
    SELECT (%(locked)s::boolean OR count(capacity) = 0)
        AND (%(follows)s::boolean OR (SELECT refusing FROM {schema}.leader) IS NULL) AS open,
        count(key_names) > 0 AS divided
    FROM {schema}.queues WHERE name = ANY (%(queues)s::text[])
), taken AS (
    -- The holder's state comes from this statement's snapshot: it counts only for the row that the snapshot shows.
    INSERT INTO {schema}.uniques AS held (key, task, until)
    SELECT new.key, new.task, (SELECT now FROM clock) + new.period
    FROM unnest(%(keys)s::text[], %(key_tasks)s::uuid[], %(periods)s::bigint[]) AS new (key, task, period)
    WHERE (SELECT open FROM known) AND (SELECT true FROM {schema}.tasks WHERE id = new.task) IS NULL
    ON CONFLICT (key) DO UPDATE SET task = excluded.task, until = excluded.until
    WHERE held.until <= (SELECT now FROM clock) OR (
        held.until IS NULL
        AND held.ctid = (SELECT seen.ctid FROM {schema}.uniques AS seen WHERE seen.key = held.key)
        AND (SELECT state FROM {schema}.tasks WHERE id = held.task) IN ('completed', 'failed', 'cancelled')
    )
    RETURNING key, task
), made AS (
    INSERT INTO {schema}.tasks (
        id, priority, created_at, run_at, expires_at, timeout, max_attempts,
        parent, state, queue, handler, params, tags, unique_key, reason, want, batch, by_wall, partition{and_more}
    )
    SELECT
        new.id, coalesce(new.priority, 0), now, nullif(greatest(due, now), now), coalesce(now + lives, expiry),
        timeout, max_attempts, parent,
        CASE WHEN held IS NOT NULL THEN 'held' WHEN due > now THEN 'scheduled' ELSE 'pending' END,
        queue, handler, params, tags::text[], unique_key, held, want, %(batch)s::text, by_wall,
        CASE WHEN (SELECT divided FROM known) THEN (
            SELECT {schema}.partition_key(key_texts, key_names, params) FROM {schema}.queues WHERE name = new.queue
        ) END{and_more}
    FROM clock, unnest(
        %(ids)s::uuid[], %(priorities)s::bigint[], %(run_ats)s::bigint[], %(delays)s::bigint[],
        %(expires_ats)s::bigint[], %(lives)s::bigint[], %(timeouts)s::bigint[], %(max_attempts)s::bigint[],
        %(parents)s::uuid[], %(task_queues)s::text[], %(handlers)s::text[], %(params)s::text[], %(tags)s::text[],
        %(unique_keys)s::text[], %(wants)s::text[], %(by_walls)s::bigint[]{more_arrays}
    ) AS new (
        id, priority, run_at, delay, expires_at, lives, timeout, max_attempts,
        parent, queue, handler, params, tags, unique_key, want, by_wall{and_more}
    ), LATERAL (
        SELECT
            CASE WHEN delay IS NOT NULL THEN now + delay
                WHEN run_at IS NOT NULL THEN run_at + (SELECT shift FROM {schema}.clock) END AS due,
            CASE WHEN expires_at IS NOT NULL THEN expires_at + (SELECT shift FROM {schema}.clock) END AS expiry,
            CASE WHEN %(batch)s::text IS NOT NULL THEN 'batch' {or_behind}
                WHEN handler <> ALL (ARRAY(SELECT name FROM {schema}.handlers WHERE name = ANY (%(known)s::text[])))
                    THEN 'handler' END AS held
    ) AS derived
    WHERE {unless_there} (SELECT open FROM known) AND (unique_key IS NULL OR new.id IN (SELECT task FROM taken))
    {or_meet}
    RETURNING id, queue, handler, state, reason, partition
), tally AS MATERIALIZED (
    SELECT queue, handler, state, reason, count(*) AS n FROM made GROUP BY queue, handler, state, reason
), new_queues AS (
    INSERT INTO {schema}.queues (name)
    SELECT DISTINCT queue FROM tally
    WHERE (SELECT true FROM {schema}.queues WHERE name = queue) IS NULL
    ORDER BY queue
    ON CONFLICT DO NOTHING
), met AS MATERIALIZED (
    SELECT DISTINCT queue, partition AS key FROM made WHERE (SELECT divided FROM known)
), keyed AS (
    INSERT INTO {schema}.new_partitions SELECT * FROM met WHERE NOT {schema}.knows_key(queue, key)
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch, handler, run, at)
    SELECT queue, state, n, %(batch)s::text, handler, 'put', now FROM tally, clock
), rung AS MATERIALIZED (
    SELECT pg_notify(%(channel)s::text, %(ring)s::text)
    WHERE %(ring)s::text IS NOT NULL AND EXISTS (SELECT FROM tally WHERE state = 'pending')
)
SELECT NULL::uuid AS id, queue, state, n, (SELECT open FROM known), (SELECT count(*) FROM rung), reason
FROM (SELECT true) AS one LEFT JOIN tally ON true
UNION ALL
SELECT id, queue, state, 1, true, 0, reason FROM made
WHERE (SELECT sum(n) <> %(size)s::bigint OR count(DISTINCT (state, reason)) > 1 FROM tally)
