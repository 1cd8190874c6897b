UPDATE pitboss_tasks
SET
    state = ?2,
    reason = coalesce(?3, reason),
    outcome = 'lost',
    losses = losses + 1,
    session = NULL,
    started_at = NULL
WHERE rowid IN (SELECT value FROM json_each(?1))
