SELECT coalesce(sum(n), 0) FROM counts WHERE queue = ? AND state IN ('held', 'scheduled', 'pending')
