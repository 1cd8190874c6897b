SELECT resource FROM pitboss_strikes WHERE pool = ? AND destination = ? AND at > ? ORDER BY resource
