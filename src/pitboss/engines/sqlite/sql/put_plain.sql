INSERT INTO pitboss_tasks (id, handler, queue, priority, created_at, params, state)
VALUES (?, ?, ?, ?, ?, ?, 'pending')
