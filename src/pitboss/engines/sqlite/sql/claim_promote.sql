UPDATE tasks
SET state = 'pending'
WHERE rowid IN (
    SELECT rowid FROM tasks WHERE state = 'scheduled' AND queue = ? AND run_at <= ? ORDER BY run_at LIMIT ?
)
