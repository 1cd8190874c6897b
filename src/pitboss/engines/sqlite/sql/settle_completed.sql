UPDATE pitboss_tasks
SET
    state = 'completed',
    outcome = told.column2,
    attempts = attempts + 1,
    result = told.column3,
    error = NULL,
    fingerprint = NULL,
    reason = NULL,
    worker = told.column4,
    started_at = told.column5,
    finished_at = told.column6,
    cancel_asked = 0,
    tried = NULL,
    rotations = 0
FROM (
    VALUES (?, ?, ?, ?, ?, ?)
) AS told
WHERE pitboss_tasks.rowid = told.column1
