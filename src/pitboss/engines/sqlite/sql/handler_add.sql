INSERT INTO pitboss_handlers (name, queue, policy, schema, resources)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
queue = excluded.queue,
policy = excluded.policy,
schema = excluded.schema,
resources = excluded.resources
