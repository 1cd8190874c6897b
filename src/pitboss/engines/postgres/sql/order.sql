-- name: order_lock
-- Lock these order keys and those of these tasks, all by key. A key that was free gets the first of its tasks for now:
-- such keys are answered, and `order_next` corrects them if that task does not become the first.
INSERT INTO {schema}.order_heads AS head (key, task)
SELECT DISTINCT ON (key) key, task FROM (
    SELECT t.order_key COLLATE "C" AS key, t.id AS task, 0 AS place
    FROM unnest(%(ids)s::uuid[]) AS asked (id), LATERAL (
        SELECT id, order_key FROM {schema}.tasks WHERE id = asked.id AND order_key IS NOT NULL
    ) AS t
    UNION ALL
    SELECT key COLLATE "C", task, place
    FROM unnest(%(keys)s::text[], %(tasks)s::uuid[]) WITH ORDINALITY AS new (key, task, place)
) AS wanted ORDER BY key, place, task
ON CONFLICT (key) DO UPDATE SET task = head.task WHERE false
RETURNING key

-- name: order_next
-- Of these keys, which are locked: where the first task has ended, or was not stored, let the next one wait.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), over AS MATERIALIZED (
    SELECT h.* FROM unnest(%(keys)s::text[]) AS asked (key), LATERAL (
        SELECT ctid AS place, key, task FROM {schema}.order_heads WHERE key = asked.key
    ) AS h
    WHERE coalesce((
        SELECT state IN ('completed', 'failed', 'cancelled') OR order_key IS DISTINCT FROM h.key
        FROM {schema}.tasks WHERE id = h.task
    ), true)
), following AS MATERIALIZED (
    SELECT over.place AS head, t.* FROM over LEFT JOIN LATERAL (
        SELECT ctid AS place, id, (SELECT true FROM {schema}.handlers WHERE name = handler) IS NULL AS unknown
        FROM {schema}.tasks
        WHERE state = 'held' AND reason = 'order' AND order_key = over.key ORDER BY order_key, created_at, id LIMIT 1 FOR UPDATE
    ) AS t ON true
), emptied AS (
    DELETE FROM {schema}.order_heads AS h USING following AS f WHERE h.ctid = f.head AND f.id IS NULL
), headed AS (
    UPDATE {schema}.order_heads AS h SET task = f.id FROM following AS f WHERE h.ctid = f.head AND f.id IS NOT NULL
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN unknown THEN 'held' WHEN t.run_at > now THEN 'scheduled' ELSE 'pending' END,
        reason = CASE WHEN unknown THEN 'handler' END
    FROM following AS f, clock WHERE t.ctid = f.place
    RETURNING t.id, t.queue, t.state, t.reason
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n)
    SELECT queue, state, count(*) FROM moved GROUP BY queue, state
    UNION ALL
    SELECT queue, 'held', -count(*) FROM moved GROUP BY queue
), rung AS MATERIALIZED (
    SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
    FROM (SELECT string_agg(DISTINCT queue, ',') AS names FROM moved WHERE state = 'pending') AS ready
    WHERE names IS NOT NULL
)
SELECT id, state, reason FROM moved LEFT JOIN rung ON true
