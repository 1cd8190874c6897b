DELETE FROM pitboss_leases WHERE name = ?
