UPDATE pitboss_tasks
SET state = 'pending'
WHERE rowid IN (
    SELECT rowid FROM pitboss_tasks WHERE state = 'scheduled' AND queue = ? AND run_at <= ? ORDER BY run_at LIMIT ?
)
