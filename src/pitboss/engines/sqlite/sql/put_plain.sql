INSERT INTO tasks (id, handler, queue, priority, created_at, params, state)
VALUES (?, ?, ?, ?, ?, ?, 'pending')
