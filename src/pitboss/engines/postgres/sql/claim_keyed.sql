-- name: queue_lock_keyed
-- Lock the queues of a request that have partitions or a rate.
SELECT name FROM {schema}.queues AS q
WHERE (key_names IS NOT NULL OR rate_counts IS NOT NULL) AND {drawn_condition}
ORDER BY name FOR UPDATE

-- name: batch_lock_keyed
-- Lock the running batches that have items to draw in queues with partitions.
SELECT id FROM {schema}.batches AS b WHERE status = 'running' AND EXISTS (
    SELECT FROM {schema}.queues AS q, LATERAL (
        SELECT FROM {schema}.tasks
        WHERE state = 'held' AND batch = b.id AND reason = 'batch' AND queue = q.name LIMIT 1
    ) AS held
    WHERE key_names IS NOT NULL AND {drawn_condition}
) ORDER BY id FOR UPDATE

-- name: keyed_slots
-- Those of these slots that are the session's.
SELECT w.pool || '/' || w.number FROM unnest(%(pools)s::text[], %(numbers)s::bigint[]) AS w (pool, number), LATERAL (
    SELECT FROM {schema}.slots AS s
    WHERE s.pool = w.pool AND s.number = w.number AND s.session = %(session)s::bigint
) AS mine

-- name: slot_kept
-- The slots that belong to a node.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT p.pool || '/' || p.number FROM {schema}.slots AS p JOIN {schema}.sessions AS s ON s.number = p.session
WHERE {kept_condition}

-- name: keyed_columns
-- A task that a slot may take. `odd` is for a claim's handlers, `other` for a slot's.
ctid AS place, id, queue, priority, partition, losses, want, tried, created_at, attempts, batch, run_at,
coalesce(expires_at <= (SELECT now FROM clock), false) AS expired,
coalesce(handler <> ALL (%(handlers)s::text[]), false) AS odd,
coalesce(handler <> ALL (%(only)s::text[]), false) AS other

-- name: keyed_pending_condition
-- A task in a line: the pending ones of a queue.
state = 'pending' AND queue = line_queue

-- name: keyed_held_condition
-- A task in a line: the items of a batch in a queue that are not drawn yet.
state = 'held' AND batch = line_batch AND reason = 'batch' AND queue = line_queue

-- name: keyed_page
-- The next tasks of these lines, `room` of each, in their order. First a row for each line: how many of its tasks were
-- looked at, and the last one. Then the tasks that matter, each with its place in the line, who owns its key, and where
-- that is limited, how many tasks of the key run. They are of these kinds, and of each line and kind there are the first
-- `each`: those that any slot may take (0: they have no key, or the queue has no partitions), those that belong to one
-- of the slots (the number of the slot), and those of other slots, where these are helped (-1).
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), lines AS MATERIALIZED (
    SELECT * FROM unnest(
        %(queues)s::text[], %(batches)s::text[], %(rooms)s::bigint[], %(priorities)s::bigint[], %(ids)s::uuid[],
        %(most)s::bigint[], %(helped)s::text[]
    ) WITH ORDINALITY AS l (line_queue, line_batch, room, last_priority, last_id, most, helped, line)
), kept AS MATERIALIZED (
    SELECT array_agg(p.pool || '/' || p.number) AS names
    FROM {schema}.slots AS p JOIN {schema}.sessions AS s ON s.number = p.session WHERE {kept_condition}
), head AS MATERIALIZED (
    SELECT line, most, t.n, t.place, t.id, t.priority, t.partition, owner, coalesce(moving, false) AS moving,
        CASE WHEN most IS NOT NULL THEN (
            SELECT count(*) FROM {schema}.tasks AS r
            WHERE r.state = 'running' AND r.queue = line_queue AND r.partition = t.partition
        ) END AS running,
        CASE WHEN helped IS NULL OR t.partition IS NULL THEN 0
            WHEN NOT moving AND owner = ANY (%(slots)s::text[]) THEN array_position(%(slots)s::text[], owner)
            WHEN helped = 'all' OR (
                helped = 'missing' AND coalesce(owner <> ALL ((SELECT names FROM kept)::text[]), true)
            ) THEN -1 END AS kind
    FROM lines
    CROSS JOIN LATERAL (
        SELECT ctid AS place, id, priority, partition, row_number() OVER (ORDER BY priority, id) AS n
        FROM {schema}.tasks
        WHERE {waiting} AND (priority, id) > (last_priority, last_id) AND (helped IS NOT NULL OR {only_condition})
        ORDER BY priority, id LIMIT room
    ) AS t LEFT JOIN LATERAL (
        -- The limit keeps it a lookup by the whole key, whatever statistics say.
        SELECT owner, moving_to IS NOT NULL AS moving FROM {schema}.partitions AS p
        WHERE helped IS NOT NULL AND p.queue = line_queue AND p.key = t.partition LIMIT 1
    ) AS k ON true
)
SELECT line, count(*), NULL AS owner, false AS moving, NULL::bigint AS running, NULL::integer AS kind,
    NULL::tid AS place, (array_agg(id))[count(*)] AS id, NULL AS queue, (array_agg(priority))[count(*)] AS priority,
    NULL AS partition, NULL::bigint AS losses, NULL AS want, NULL::text[] AS tried, NULL::bigint AS created_at,
    NULL::bigint AS attempts, NULL AS batch, NULL::bigint AS run_at, false AS expired, false AS odd, false AS other
FROM head GROUP BY line
UNION ALL
SELECT line, n, owner, moving, running, kind, t.* FROM (
    SELECT *, row_number() OVER (PARTITION BY line, kind ORDER BY n) AS rank FROM {startable}
) AS ranked, LATERAL (
    SELECT {keyed_columns} FROM {schema}.tasks WHERE ctid = ranked.place
) AS t WHERE rank <= %(each)s::bigint

-- name: keyed_startable
-- The tasks of `head` that a slot may take.
head WHERE kind IS NOT NULL

-- name: keyed_startable_capped
-- The same, of each key only a few more than may start where that is limited.
(
    SELECT *, row_number() OVER (PARTITION BY line, partition ORDER BY n) AS nth FROM head WHERE kind IS NOT NULL
) AS startable
WHERE kind = 0 OR running IS NULL OR (running < most AND nth <= most - running + %(margin)s::bigint)

-- name: keyed_own_condition
-- A key that the slot owns.
p.owner = a.slot AND moving_to IS NULL

-- name: keyed_helped_condition
-- A key of which any slot may take tasks.
(helped = 'all' OR coalesce(p.owner <> ALL ((SELECT names FROM kept)::text[]), true))

-- name: keyed_beyond
-- The next tasks of such keys for each of these slots, line by line and key by key, behind those that were looked at in
-- each line, and behind the last one that the slot was shown. Keys of which as many tasks run as may are left out.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), lines AS MATERIALIZED (
    SELECT * FROM unnest(
        %(queues)s::text[], %(batches)s::text[], %(priorities)s::bigint[], %(ids)s::uuid[], %(most)s::bigint[],
        %(helped)s::text[]
    ) WITH ORDINALITY AS l (line_queue, line_batch, last_priority, last_id, most, helped, line)
), kept AS MATERIALIZED (
    SELECT array_agg(p.pool || '/' || p.number) AS names
    FROM {schema}.slots AS p JOIN {schema}.sessions AS s ON s.number = p.session WHERE {kept_condition}
), asked AS MATERIALIZED (
    SELECT * FROM unnest(
        %(slots)s::text[], %(after_lines)s::bigint[], %(after_keys)s::text[], %(after_priorities)s::bigint[],
        %(after_ids)s::uuid[]
    ) AS a (slot, after_line, after_key, after_priority, after_id)
)
SELECT line, NULL, owner, moving, running, a.slot, place, id, queue, priority, partition, losses, want, tried,
    created_at, attempts, batch, run_at, expired, odd, other
FROM asked AS a, LATERAL (
    SELECT l.line, k.owner, k.moving, r.running, found.* FROM lines AS l, LATERAL (
        SELECT key, owner, moving_to IS NOT NULL AS moving FROM {schema}.partitions AS p
        WHERE p.queue = line_queue AND {of_keys}
            AND p.key >= CASE WHEN l.line = after_line THEN after_key ELSE '' END COLLATE "C"
        ORDER BY key
    ) AS k, LATERAL (
        SELECT count(*) AS running FROM {schema}.tasks AS t
        WHERE most IS NOT NULL AND t.state = 'running' AND t.queue = line_queue AND t.partition = k.key
    ) AS r, LATERAL (
        SELECT {keyed_columns} FROM {schema}.tasks
        WHERE {waiting} AND partition = k.key AND (priority, id) > (
            CASE WHEN l.line = after_line AND k.key = after_key THEN after_priority ELSE last_priority END,
            CASE WHEN l.line = after_line AND k.key = after_key THEN after_id ELSE last_id END
        )
        ORDER BY priority, id
        LIMIT least(%(size)s::bigint, CASE WHEN most > running THEN most - running WHEN most IS NOT NULL THEN 0 END)
    ) AS found
    WHERE l.line >= after_line LIMIT %(size)s
) AS t

-- name: keyed_items
-- How many items of batches are pending, by line and key.
WITH lines AS MATERIALIZED (
    SELECT * FROM unnest(%(queues)s::text[], %(batches)s::text[], %(most)s::bigint[])
        WITH ORDINALITY AS l (line_queue, line_batch, most, line)
)
SELECT line, few.n, k.owner, coalesce(k.moving, false), r.running, few.partition FROM lines, LATERAL (
    SELECT partition, count(*) AS n FROM (
        SELECT partition FROM {schema}.tasks
        WHERE batch = line_batch AND state = 'pending' AND queue = line_queue LIMIT %(limit)s::bigint
    ) AS first GROUP BY partition
) AS few LEFT JOIN LATERAL (
    SELECT owner, moving_to IS NOT NULL AS moving FROM {schema}.partitions AS p
    WHERE p.queue = line_queue AND p.key = few.partition LIMIT 1
) AS k ON true LEFT JOIN LATERAL (
    SELECT count(*) AS running FROM {schema}.tasks AS t
    WHERE most IS NOT NULL AND t.state = 'running' AND t.queue = line_queue AND t.partition = few.partition
) AS r ON true

-- name: keyed_lock
-- Lock tasks where they were seen; those that have changed since, or that another transaction has locked, are left out.
SELECT t.* FROM unnest(%(places)s::tid[]) AS w (seen), LATERAL (
    SELECT ctid FROM {schema}.tasks WHERE ctid = w.seen FOR UPDATE SKIP LOCKED
) AS t

-- name: keyed_draw
-- Make items of locked batches pending, or scheduled if they are due later; where they are now.
WITH moved AS (
    UPDATE {schema}.tasks AS t
    SET state = CASE WHEN run_at > %(now)s::bigint THEN 'scheduled' ELSE 'pending' END, reason = NULL
    FROM unnest(%(places)s::tid[]) AS w (place) WHERE t.ctid = w.place AND t.state = 'held'
    RETURNING t.id, t.ctid AS place, t.queue, t.state, t.batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, count(*), batch FROM moved GROUP BY queue, state, batch
    UNION ALL
    SELECT queue, 'held', -count(*), batch FROM moved GROUP BY queue, batch
)
SELECT id, place FROM moved

-- name: claim_take_keyed
-- Start tasks where they were seen, pending or not drawn yet. Those that have changed since, or that another
-- transaction has locked, are left out.
WITH found AS MATERIALIZED (
    SELECT f.*, t.place, t.was FROM unnest(
        %(places)s::tid[], %(resources)s::text[], %(workers)s::text[], %(keys)s::text[]
    ) AS f (seen, resource, worker, key), LATERAL (
        SELECT ctid AS place, state AS was FROM {schema}.tasks
        WHERE ctid = f.seen AND state IN ('pending', 'held') FOR UPDATE SKIP LOCKED
    ) AS t
), given AS (
    UPDATE {schema}.tasks AS t SET
        state = 'running', session = %(session)s::bigint, claim = claim + 1, started_at = %(now)s::bigint,
        worker = f.worker, reason = NULL, progress = NULL, note = NULL, resource = f.resource,
        claim_lasts = %(lasts)s::bigint, claim_expires_at = %(now)s::bigint + %(lasts)s::bigint, claim_key = f.key
    FROM found AS f WHERE t.ctid = f.place
    RETURNING {claim_columns}, f.was
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, sign * n, batch
    FROM (SELECT queue, was, batch, count(*) AS n FROM given GROUP BY queue, was, batch) AS moved, LATERAL (
        VALUES (was, -1), ('running', 1)
    ) AS change (state, sign)
)
SELECT * FROM given
