INSERT INTO pitboss_lanes (name, max_running) VALUES (?, 1) ON CONFLICT DO NOTHING
