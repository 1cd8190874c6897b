UPDATE pitboss_tasks
SET
    state = 'cancelled',
    outcome = 'lost',
    losses = losses + 1,
    attempts = attempts + 1,
    session = NULL,
    finished_at = ?,
    cancel_asked = 0
WHERE rowid IN (SELECT value FROM json_each(?))
