INSERT OR REPLACE INTO pitboss_lanes (name, max_running) VALUES (?, ?)
