-- Ready members in the order in which they are given: so many with these labels, and these by name. Whom somebody else is
-- about to give is passed by.
SELECT number, pool, name, stage, rank, last_used_at, available_at, in_use, enabled, labels, settings, record
FROM unnest(%(pools)s::text[], %(labels)s::text[], %(limits)s::bigint[]) AS wanted (of, marks, most), LATERAL (
    SELECT * FROM {schema}.resources WHERE pool = of AND stage = 'ready' AND labels @> marks::text[]
    ORDER BY rank, last_used_at, name LIMIT most FOR UPDATE SKIP LOCKED
) AS r
UNION ALL
SELECT number, pool, name, stage, rank, last_used_at, available_at, in_use, enabled, labels, settings, record
FROM unnest(%(named_pools)s::text[], %(names)s::text[]) AS wanted (of, known), LATERAL (
    SELECT * FROM {schema}.resources WHERE pool = of AND name = known AND stage = 'ready' FOR UPDATE SKIP LOCKED
) AS r
