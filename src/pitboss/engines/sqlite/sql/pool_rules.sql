SELECT rules FROM pitboss_pools WHERE name = ?
