INSERT INTO pitboss_counts (queue, state, n)
VALUES (?, ?, ?)
ON CONFLICT (queue, state) DO UPDATE SET n = n + excluded.n
