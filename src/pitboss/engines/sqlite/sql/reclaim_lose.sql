UPDATE pitboss_tasks
SET
    state = ?2,
    reason = ?3,
    outcome = 'lost',
    losses = losses + 1,
    session = NULL,
    started_at = NULL
WHERE rowid IN (SELECT value FROM json_each(?1))
