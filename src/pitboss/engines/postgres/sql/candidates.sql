-- The next pending tasks of these queues behind the last ones that were looked at, locked; as many of each queue as are
-- among the first over all, so that no more are locked than looked at.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), lanes AS MATERIALIZED (
    SELECT * FROM unnest(%(names)s::text[], %(rooms)s::bigint[], %(priorities)s::bigint[], %(ids)s::uuid[])
        AS lane (name, room, last_priority, last_id)
), shares AS MATERIALIZED (
    SELECT name, count(*) AS share FROM (
        SELECT name FROM lanes, LATERAL (
            SELECT priority, id FROM {schema}.tasks
            WHERE state = 'pending' AND queue = name AND (priority, id) > (last_priority, last_id)
            ORDER BY priority, id LIMIT least(room, %(wanted)s::bigint)
        ) AS head ORDER BY priority, id LIMIT %(wanted)s
    ) AS merged GROUP BY name
)
SELECT t.* FROM lanes, LATERAL (
    SELECT ctid AS place, id, queue, priority, losses, want, tried, coalesce(
        expires_at <= (SELECT now FROM clock) OR handler <> ALL (%(handlers)s::text[]), false) AS odd
    FROM {schema}.tasks
    WHERE state = 'pending' AND queue = name AND (priority, id) > (last_priority, last_id)
    ORDER BY priority, id LIMIT coalesce((SELECT share FROM shares WHERE shares.name = lanes.name), 0)
    FOR UPDATE SKIP LOCKED
) AS t ORDER BY t.priority, t.id
