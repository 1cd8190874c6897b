DELETE FROM pitboss_starts WHERE queue = ? AND at <= ?
