INSERT INTO pitboss_tasks (
    id, handler, queue, priority, created_at, params,
    state, reason, run_at, max_attempts, timeout, expires_at, unique_key, tags, parent, batch, want
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
