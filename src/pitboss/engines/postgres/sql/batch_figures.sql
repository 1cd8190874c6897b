SELECT batch, queue, state, sum(n)::bigint FROM (
    SELECT batch, queue, state, n FROM {schema}.batch_counts WHERE batch = ANY (%(ids)s::text[])
    UNION ALL
    SELECT batch, queue, state, n FROM {schema}.count_deltas WHERE batch = ANY (%(ids)s::text[])
) AS parts GROUP BY batch, queue, state HAVING sum(n) <> 0
