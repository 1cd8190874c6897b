INSERT OR REPLACE INTO pitboss_leases (name, pool, member, until, leased) VALUES (?, ?, ?, ?, ?)
