-- How many enabled members carry these labels; more than a task can have tried need not be counted.
SELECT w.pool, w.labels, (
    SELECT count(*) FROM (
        SELECT FROM {schema}.resources AS r
        WHERE r.pool = w.pool AND enabled AND r.labels @> w.labels::text[] LIMIT %(most)s::bigint
    ) AS few
) FROM unnest(%(pools)s::text[], %(labels)s::text[]) AS w (pool, labels)
