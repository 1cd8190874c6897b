INSERT OR REPLACE INTO pitboss_strikes (pool, destination, resource, at) VALUES (?, ?, ?, ?)
