-- name: claim_native
-- The first tasks, by priority and age.
shares AS MATERIALIZED (
    -- How many of the first tasks over all queues are in each queue, so that no more rows are locked than claimed.
    SELECT name, count(*) AS share FROM (
        SELECT name FROM open_queues, LATERAL (
            SELECT priority, id FROM {schema}.tasks
            WHERE state = 'pending' AND queue = name{only}
                AND (NOT %(choosy)s::boolean OR (
                    (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
                    AND (%(handlers)s::text[] IS NULL OR handler = ANY (%(handlers)s::text[]))))
                AND (NOT %(fresh)s::boolean OR losses = 0)
            ORDER BY priority, id LIMIT room
        ) AS head ORDER BY priority, id LIMIT %(wanted)s
    ) AS merged GROUP BY name
), {found} AS MATERIALIZED (
    SELECT t.place, t.odd, t.losses{rank} FROM open_queues, LATERAL (
        SELECT ctid AS place, losses, expires_at <= (SELECT now FROM clock)
            OR handler <> ALL (%(handlers)s::text[]) AS odd{rank}
        FROM {schema}.tasks
        WHERE state = 'pending' AND queue = name{only}
            AND (NOT %(choosy)s::boolean OR (
                (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
                AND (%(handlers)s::text[] IS NULL OR handler = ANY (%(handlers)s::text[]))))
            AND (NOT %(fresh)s::boolean OR losses = 0)
        ORDER BY priority, id
        LIMIT CASE WHEN (SELECT count(*) FROM open_queues) = 1 THEN room
            ELSE coalesce((SELECT share FROM shares WHERE shares.name = open_queues.name), 0) END
        FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE (SELECT alive AND snag IS NULL FROM before)
    LIMIT %(wanted)s
)

-- name: claim_ordered
-- The first tasks in another order, among those that are the first by priority and age. They are locked one by one, so
-- that no more rows are locked than claimed.
looked_at AS MATERIALIZED (
    SELECT name, rated, room, head.* FROM open_queues, LATERAL (
        SELECT ctid AS seen, id, priority, created_at, attempts FROM {schema}.tasks
        WHERE state = 'pending' AND queue = name
            AND (%(only)s::text[] IS NULL OR handler = ANY (%(only)s::text[]))
            AND (NOT %(choosy)s::boolean OR (
                (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
                AND (%(handlers)s::text[] IS NULL OR handler = ANY (%(handlers)s::text[]))))
            AND (NOT %(fresh)s::boolean OR losses = 0)
        ORDER BY priority, id LIMIT %(ordered)s::bigint
    ) AS head ORDER BY priority, id LIMIT %(ordered)s
), ranked AS MATERIALIZED (
    SELECT seen, row_number() OVER (ORDER BY {order}, priority, id) AS rank,
        NOT rated OR row_number() OVER (PARTITION BY name ORDER BY {order}, priority, id) <= room AS fits
    FROM looked_at ORDER BY rank
), found AS MATERIALIZED (
    SELECT t.*, rank FROM ranked, LATERAL (
        SELECT ctid AS place, losses, expires_at <= (SELECT now FROM clock)
            OR handler <> ALL (%(handlers)s::text[]) AS odd
        FROM {schema}.tasks WHERE ctid = ranked.seen AND state = 'pending' FOR UPDATE SKIP LOCKED
    ) AS t
    WHERE fits AND (SELECT alive AND snag IS NULL FROM before)
    LIMIT %(wanted)s
)

-- name: claim_placed
-- Each task with the worker and the key of the place that it gets.
picked AS MATERIALIZED (
    SELECT place, odd, losses, number, w.worker, w.key FROM (
        SELECT place, odd, losses, row_number() OVER (ORDER BY {rank}) AS number FROM found
    ) AS numbered
    LEFT JOIN unnest(%(workers)s::text[], %(keys)s::text[]) WITH ORDINALITY AS w (worker, key, number) USING (number)
)

-- name: tidy_first
-- The first tasks of the queues.
{schema}.queues AS q, LATERAL (
    SELECT id, priority, handler, batch, order_key, coalesce(expires_at <= (SELECT now FROM clock), false) AS expired
    FROM {schema}.tasks WHERE state = 'pending' AND queue = q.name AND {only_condition}
    ORDER BY priority, id LIMIT %(wanted)s::bigint
) AS t
WHERE {asked_condition}
ORDER BY t.priority, t.id LIMIT %(wanted)s

-- name: tidy_these
-- Tasks that a claim has met.
unnest(%(ids)s::uuid[]) AS w (met), LATERAL (
    SELECT id, handler, batch, order_key, coalesce(expires_at <= (SELECT now FROM clock), false) AS expired
    FROM {schema}.tasks WHERE id = w.met AND state = 'pending'
) AS t
