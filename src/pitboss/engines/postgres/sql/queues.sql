WITH figures AS (
    SELECT queue, state, sum(n) AS n FROM (
        SELECT queue, state, n FROM {schema}.counts WHERE %(name)s::text IS NULL OR queue = %(name)s::text
        UNION ALL
        SELECT queue, state, n FROM {schema}.count_deltas WHERE %(name)s::text IS NULL OR queue = %(name)s::text
    ) AS parts GROUP BY queue, state HAVING sum(n) <> 0
)
SELECT name, paused, paused_by, paused_at, capacity, rate_counts, rate_spans, (
    SELECT resources FROM {schema}.handlers AS h WHERE h.queue = queues.name AND resources IS NOT NULL
    ORDER BY h.name COLLATE "C" LIMIT 1
), (
    SELECT coalesce(json_object_agg(state, n), json_build_object())::text FROM figures WHERE queue = name
)
FROM {schema}.queues WHERE %(name)s::text IS NULL OR name = %(name)s::text ORDER BY name
