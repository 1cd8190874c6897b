-- Places taken by waiting tasks in queues with a capacity.
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
