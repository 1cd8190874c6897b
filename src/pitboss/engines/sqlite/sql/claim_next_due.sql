SELECT min(run_at) FROM tasks WHERE state = 'scheduled' AND queue = ?
