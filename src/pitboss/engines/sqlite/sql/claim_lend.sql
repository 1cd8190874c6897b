-- Taken together with members of resource pools.
UPDATE pitboss_tasks
SET
    state = 'running',
    session = told.column2,
    claim = claim + 1,
    started_at = told.column3,
    worker = NULL,
    reason = NULL,
    progress = NULL,
    note = NULL,
    resource = told.column4,
    member = told.column5
FROM (
    VALUES (?, ?, ?, ?, ?)
) AS told
WHERE pitboss_tasks.rowid = told.column1
