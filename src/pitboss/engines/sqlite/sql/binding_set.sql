INSERT OR REPLACE INTO pitboss_bindings (pool, key, resource, until) VALUES (?, ?, ?, ?)
