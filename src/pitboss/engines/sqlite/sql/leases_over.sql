SELECT name, pool, member FROM pitboss_leases WHERE until <= ? ORDER BY until LIMIT ?
