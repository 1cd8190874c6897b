INSERT OR REPLACE INTO pitboss_uses (resource, seq, at) VALUES (?, ?, ?)
