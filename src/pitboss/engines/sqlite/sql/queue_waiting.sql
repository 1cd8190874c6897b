SELECT coalesce(sum(n), 0) FROM pitboss_counts WHERE queue = ? AND state IN ('held', 'scheduled', 'pending')
