SELECT state, sum(n) FROM pitboss_batch_counts WHERE batch = ? GROUP BY state HAVING sum(n) > 0
