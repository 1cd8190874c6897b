SELECT queue FROM pitboss_batch_counts WHERE batch = ? GROUP BY queue HAVING sum(n) > 0 ORDER BY queue
