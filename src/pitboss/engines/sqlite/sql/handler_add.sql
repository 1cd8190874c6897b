INSERT INTO pitboss_handlers (name, queue, policy, schema)
VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, policy = excluded.policy, schema = excluded.schema
