SELECT batch, count(*)
FROM (
    SELECT batch FROM pitboss_tasks WHERE state = 'scheduled' AND queue = ? AND run_at <= ? ORDER BY run_at LIMIT ?
)
WHERE batch IS NOT NULL
GROUP BY batch
