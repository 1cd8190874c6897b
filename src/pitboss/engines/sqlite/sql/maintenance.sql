-- name: maintenance_differences
-- Stored numbers of tasks minus those that a recount gives.
SELECT queue, state, sum(n) FROM (
    SELECT queue, state, n FROM pitboss_counts
    UNION ALL
    SELECT queue, state, -count(*) FROM pitboss_tasks GROUP BY queue, state
) GROUP BY queue, state HAVING sum(n) <> 0

-- name: maintenance_forget_counts
DELETE FROM pitboss_counts

-- name: maintenance_count
INSERT INTO pitboss_counts (queue, state, n)
SELECT queue, state, count(*) FROM pitboss_tasks GROUP BY queue, state

-- name: maintenance_forget_batch_counts
DELETE FROM pitboss_batch_counts

-- name: maintenance_count_batches
INSERT INTO pitboss_batch_counts (batch, queue, state, n)
SELECT batch, queue, state, count(*) FROM pitboss_tasks WHERE batch IS NOT NULL GROUP BY batch, queue, state
