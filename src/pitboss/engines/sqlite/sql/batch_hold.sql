UPDATE pitboss_tasks SET state = 'held', reason = 'batch' WHERE batch = ? AND state = ?
