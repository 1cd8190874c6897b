UPDATE pitboss_tasks
SET
    state = 'running',
    session = ?,
    claim = claim + 1,
    started_at = ?,
    worker = NULL,
    reason = NULL,
    progress = NULL,
    note = NULL,
    resource = NULL,
    member = NULL
WHERE rowid IN (SELECT value FROM json_each(?))
