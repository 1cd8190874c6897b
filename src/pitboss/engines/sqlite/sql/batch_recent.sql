SELECT count(*) FROM pitboss_tasks WHERE finished_at IS NOT NULL AND batch = ? AND finished_at >= ?
