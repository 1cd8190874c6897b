-- name: maintenance_indexes
-- Indexes that the server does not use: their creation failed, or is under way.
SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = to_regnamespace(%(schema)s) AND NOT (indisvalid AND indisready)

-- name: maintenance_differences
-- Stored numbers of tasks minus those that a recount gives. One statement, so that both are of one moment.
SELECT queue, state, sum(n)::bigint FROM (
    SELECT queue, state, n FROM {schema}.counts
    UNION ALL SELECT queue, state, n FROM {schema}.count_deltas
    UNION ALL SELECT queue, state, -count(*) FROM {schema}.tasks GROUP BY queue, state
) AS parts GROUP BY queue, state HAVING sum(n) <> 0 ORDER BY queue, state

-- name: maintenance_lock
LOCK TABLE {schema}.tasks, {schema}.count_deltas, {schema}.counts, {schema}.batch_counts IN SHARE ROW EXCLUSIVE MODE

-- name: maintenance_keep_flows
-- What is not folded yet counts in the flows, which are not counted again.
WITH told AS MATERIALIZED (
    SELECT at - at %% 10000000 AS began, queue, handler, {flow_delta_columns}
    FROM {schema}.count_deltas WHERE handler IS NOT NULL
), {total_place_columns}
{flow_told_changes}

-- name: maintenance_forget_deltas
DELETE FROM {schema}.count_deltas

-- name: maintenance_forget_counts
DELETE FROM {schema}.counts

-- name: maintenance_count
INSERT INTO {schema}.counts (queue, state, n)
SELECT queue, state, count(*) FROM {schema}.tasks GROUP BY queue, state

-- name: maintenance_forget_batch_counts
DELETE FROM {schema}.batch_counts

-- name: maintenance_count_batches
INSERT INTO {schema}.batch_counts (batch, queue, state, n)
SELECT batch, queue, state, count(*) FROM {schema}.tasks WHERE batch IS NOT NULL GROUP BY batch, queue, state

-- name: maintenance_count_unfinished
UPDATE {schema}.batches AS b SET unfinished = (
    SELECT count(*) FROM {schema}.tasks
    WHERE batch = b.id AND state NOT IN ('completed', 'failed', 'cancelled')
)
