SELECT name, paused, paused_by, paused_at, capacity, rate FROM pitboss_queues WHERE name = ?
