-- name: refusing_get
SELECT refusing FROM {schema}.leader

-- name: refusing_set
UPDATE {schema}.leader SET refusing = %(reason)s::text

-- name: usage_get
-- Files do not shrink when rows are deleted: a table counts only for the part of it that its rows fill. Growth is known
-- at once from the server's statistics, and what was deleted after the next vacuum. The rows of a table for long values
-- are about 2,000 bytes each.
WITH sizes AS (
    SELECT
        pg_total_relation_size(heap.oid) AS bytes,
        pg_relation_size(heap.oid) + coalesce(pg_relation_size(long.oid), 0) AS room,
        CASE WHEN heap.reltuples >= 0 AND coalesce(long.reltuples, 0) >= 0 THEN
            greatest(heap.reltuples, pg_stat_get_live_tuples(heap.oid)) * (widths.bytes + 28)
            + coalesce(greatest(long.reltuples, pg_stat_get_live_tuples(long.oid)), 0) * 2040
        END AS filled
    FROM pg_class AS heap
    JOIN pg_namespace AS place ON place.oid = heap.relnamespace
    LEFT JOIN pg_class AS long ON long.oid = heap.reltoastrelid
    LEFT JOIN LATERAL (
        SELECT sum(avg_width) AS bytes FROM pg_stats WHERE schemaname = place.nspname AND tablename = heap.relname
    ) AS widths ON true
    WHERE place.nspname = %(schema)s::text AND heap.relkind = 'r'
)
SELECT
    (SELECT refusing FROM {schema}.leader),
    sum(CASE WHEN room = 0 THEN bytes ELSE bytes * least(1, coalesce(filled / room, 1)) END)::bigint
FROM sizes
