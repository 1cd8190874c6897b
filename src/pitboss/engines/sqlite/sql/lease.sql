SELECT pool, member, until, leased FROM pitboss_leases WHERE name = ?
