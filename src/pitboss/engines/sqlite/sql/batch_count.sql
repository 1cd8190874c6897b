INSERT INTO pitboss_batch_counts (batch, queue, state, n)
VALUES (?, ?, ?, ?)
ON CONFLICT (batch, queue, state) DO UPDATE SET n = n + excluded.n
