INSERT INTO pitboss_pools (name, rules) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET rules = excluded.rules
