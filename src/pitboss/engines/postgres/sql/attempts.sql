-- The runs that stand in the history, and the one that finished the task.
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
