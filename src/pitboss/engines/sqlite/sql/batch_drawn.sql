SELECT queue, count(*) AS n FROM pitboss_tasks WHERE batch = ? AND state = ? GROUP BY queue
