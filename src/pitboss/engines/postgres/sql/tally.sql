-- Figures that changed, and who is to be rung: these queues, and those of these pools.
WITH counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT * FROM unnest(%(queues)s::text[], %(states)s::text[], %(numbers)s::bigint[], %(batches)s::text[])
)
SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
FROM (
    SELECT string_agg(name, ',') AS names FROM (
        SELECT unnest(%(ring)s::text[]) UNION
        SELECT queue FROM {schema}.handlers WHERE resources = ANY (%(pools)s::text[])
    ) AS rung (name)
) AS all_of_them WHERE names IS NOT NULL
