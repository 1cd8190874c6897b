SELECT coalesce(sum(n), 0) FROM starts WHERE queue = ? AND at > ?
