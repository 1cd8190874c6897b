-- ?1 is the moment, ?2 the session; a row is an id, a claim's number, a result, a worker and how long it ran.
-- The session stays as it is: its number stands before the rows so that theirs come after it.
UPDATE pitboss_tasks
SET
    state = 'completed',
    outcome = 'completed',
    session = ?2,
    attempts = attempts + 1,
    result = told.column3,
    error = NULL,
    fingerprint = NULL,
    reason = NULL,
    worker = told.column4,
    started_at = coalesce(?1 - told.column5, started_at),
    finished_at = ?1,
    cancel_asked = 0,
    tried = NULL,
    rotations = 0
FROM (
    VALUES (?, ?, ?, ?, ?)
) AS told
WHERE
    id = told.column1
    AND state = 'running'
    AND session = ?2
    AND claim = told.column2
    AND unique_key IS NULL
    AND batch IS NULL
    AND member IS NULL
