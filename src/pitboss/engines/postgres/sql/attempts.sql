-- name: attempt_list
-- The runs in the history, and the run that finished the task, which is in its row.
SELECT claim, attempt, outcome, started_at, ended_at, session, worker, error FROM (
    SELECT claim, attempt, outcome, started_at, ended_at, session, worker, error
    FROM {schema}.attempts WHERE task = %(task)s::uuid
    UNION ALL
    SELECT claim, attempts, coalesce(outcome, ''), started_at, finished_at, session, worker, error
    FROM {schema}.tasks
    WHERE id = %(task)s::uuid AND state IN ('completed', 'failed', 'cancelled')
        AND started_at IS NOT NULL AND finished_at IS NOT NULL
    ORDER BY claim DESC LIMIT 100
) AS runs ORDER BY claim

-- name: attempt_forget
-- Keep the last hundred runs of a task.
DELETE FROM {schema}.attempts AS a USING unnest(%(tasks)s::uuid[]) AS long (task)
WHERE a.task = long.task AND a.claim <= (
    SELECT claim FROM {schema}.attempts WHERE task = long.task ORDER BY claim DESC OFFSET 100 LIMIT 1
)
