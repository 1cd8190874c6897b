SELECT name, paused, paused_by, paused_at, capacity, rate FROM queues ORDER BY name
