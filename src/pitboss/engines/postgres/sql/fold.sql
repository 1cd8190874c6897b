-- One folder at a time; the others find the lock taken and go on.
WITH folded AS MATERIALIZED (
    DELETE FROM {schema}.count_deltas
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.count_deltas LIMIT %(limit)s::bigint))
        AND (SELECT pg_try_advisory_xact_lock(%(lock)s::bigint))
    RETURNING queue, state, n, batch
), of_batches AS (
    INSERT INTO {schema}.batch_counts AS c (batch, queue, state, n)
    SELECT batch, queue, state, sum(n) FROM folded
    WHERE batch IS NOT NULL GROUP BY batch, queue, state ORDER BY batch, queue, state
    ON CONFLICT (batch, queue, state) DO UPDATE SET n = c.n + excluded.n
)
INSERT INTO {schema}.counts AS c (queue, state, n)
SELECT queue, state, sum(n) FROM folded GROUP BY queue, state ORDER BY queue, state
ON CONFLICT (queue, state) DO UPDATE SET n = c.n + excluded.n
