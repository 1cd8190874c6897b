INSERT INTO pitboss_starts (queue, at, n) VALUES (?, ?, ?) ON CONFLICT (queue, at) DO UPDATE SET n = n + excluded.n
