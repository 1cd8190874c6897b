SELECT min(run_at) FROM pitboss_tasks WHERE state = 'scheduled' AND queue = ?
