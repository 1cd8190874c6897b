SELECT coalesce(sum(n), 0) FROM pitboss_starts WHERE queue = ? AND at > ?
