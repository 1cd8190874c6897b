UPDATE pitboss_tasks
SET
    state = 'completed',
    outcome = 'completed',
    attempts = attempts + 1,
    result = told.column3,
    error = NULL,
    fingerprint = NULL,
    reason = NULL,
    worker = told.column4,
    started_at = coalesce(told.column5, started_at),
    finished_at = told.column6,
    cancel_asked = 0,
    tried = NULL,
    rotations = 0
FROM (
    VALUES (?, ?, ?, ?, ?, ?, ?)
) AS told
WHERE
    id = told.column1
    AND state = 'running'
    AND session = told.column7
    AND claim = told.column2
    AND unique_key IS NULL
    AND batch IS NULL
    AND member IS NULL
