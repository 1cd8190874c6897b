-- name: kept_condition
-- A slot whose session `s` is alive, or ended in order not long ago (`pool_slot.is_kept`).
(CASE WHEN s.ended THEN s.expires_at + s.ttl ELSE s.expires_at END > (SELECT now FROM clock))

-- name: slot_lock
-- One call at a time gives numbers of a worker pool.
SELECT pg_advisory_xact_lock(hashtextextended(%(channel)s::text || ' slots ' || %(pool)s::text, 0))

-- name: slot_list
-- The slots that belong to a node, of one pool or all, with their sessions; and the moment.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT now, p.pool, p.number, p.node, p.place, p.queues, s.number, s.host, s.boot_id, s.pid, s.kind, s.handlers, s.ttl,
    s.opened_at, s.expires_at, s.ended, s.snapshot
FROM clock LEFT JOIN ({schema}.slots AS p JOIN {schema}.sessions AS s ON s.number = p.session AND {kept_condition})
    ON %(pool)s::text IS NULL OR p.pool = %(pool)s::text
ORDER BY p.pool, p.number

-- name: slot_session
SELECT number, host, boot_id, pid, kind, handlers, ttl, opened_at, expires_at, ended, snapshot
FROM {schema}.sessions WHERE number = %(session)s::bigint

-- name: slot_forget
DELETE FROM {schema}.slots WHERE pool = %(pool)s::text AND number <> ALL (%(kept)s::bigint[])

-- name: slot_write
INSERT INTO {schema}.slots (pool, number, node, place, session, queues)
SELECT %(pool)s::text, number, %(node)s::text, place, %(session)s::bigint, %(queues)s::text[]
FROM unnest(%(numbers)s::bigint[], %(places)s::bigint[]) AS n (number, place)
ON CONFLICT (pool, number) DO UPDATE SET
    node = excluded.node, place = excluded.place, session = excluded.session, queues = excluded.queues

-- name: partition_list
SELECT key, owner, moving_to, epoch, pinned FROM {schema}.partitions WHERE queue = %(queue)s::text
UNION ALL
SELECT DISTINCT key, NULL, NULL, 0::bigint, NULL FROM {schema}.new_partitions AS n
WHERE queue = %(queue)s::text
    AND (SELECT true FROM {schema}.partitions AS p WHERE p.queue = n.queue AND p.key = n.key) IS NULL
ORDER BY key

-- name: partition_counts
-- Unfinished tasks by key and state: each state has an index of its own.
SELECT partition, state, count(*) FROM {schema}.tasks
WHERE queue = %(queue)s::text AND partition IS NOT NULL AND state = 'pending' {of_key} GROUP BY partition, state
UNION ALL
SELECT partition, state, count(*) FROM {schema}.tasks
WHERE queue = %(queue)s::text AND partition IS NOT NULL AND state = 'running' {of_key} GROUP BY partition, state
UNION ALL
SELECT partition, state, count(*) FROM {schema}.tasks
WHERE queue = %(queue)s::text AND partition IS NOT NULL AND state = 'scheduled' {of_key} GROUP BY partition, state
UNION ALL
SELECT partition, state, count(*) FROM {schema}.tasks
WHERE queue = %(queue)s::text AND partition IS NOT NULL AND state = 'held' {of_key} GROUP BY partition, state

-- name: partition_queue
-- Lock the queue: no claim on it is under way then.
SELECT helped FROM {schema}.queues WHERE name = %(queue)s::text FOR UPDATE

-- name: partition_read
-- These keys and those that are moving, and whether a task of each runs. The queue is locked.
SELECT w.key, p.owner, p.moving_to, coalesce(p.epoch, 0), p.pinned, p.key IS NOT NULL, EXISTS (
    SELECT FROM {schema}.tasks AS t
    WHERE t.state = 'running' AND t.partition IS NOT NULL AND t.queue = %(queue)s::text AND t.partition = w.key
) FROM (
    SELECT unnest(%(keys)s::text[]) AS key
    UNION SELECT key FROM {schema}.partitions WHERE queue = %(queue)s::text AND moving_to IS NOT NULL
) AS w LEFT JOIN {schema}.partitions AS p ON p.queue = %(queue)s::text AND p.key = w.key

-- name: partition_write
-- Write keys of a locked queue, and ring it. In the order of `partition_fold`: both may insert the same new keys.
WITH written AS (
    INSERT INTO {schema}.partitions AS p (queue, key, owner, moving_to, epoch, pinned)
    SELECT %(queue)s::text, * FROM unnest(
        %(keys)s::text[], %(owners)s::text[], %(moving)s::text[], %(epochs)s::bigint[], %(pinned)s::text[]
    ) AS n (key, owner, moving_to, epoch, pinned) ORDER BY key COLLATE "C"
    ON CONFLICT (queue, key) DO UPDATE SET
        owner = excluded.owner, moving_to = excluded.moving_to, epoch = excluded.epoch, pinned = excluded.pinned
)
SELECT pg_notify(%(channel)s::text, %(queue)s::text)

-- name: partition_fold
-- Move keys that puts have met to the others. One sweep at a time: others find the lock taken and skip it.
WITH folded AS MATERIALIZED (
    DELETE FROM {schema}.new_partitions
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.new_partitions LIMIT %(limit)s::bigint))
        AND (SELECT pg_try_advisory_xact_lock(%(lock)s::bigint))
    RETURNING queue, key
)
INSERT INTO {schema}.partitions (queue, key) SELECT DISTINCT queue, key FROM folded ORDER BY queue, key
ON CONFLICT DO NOTHING
