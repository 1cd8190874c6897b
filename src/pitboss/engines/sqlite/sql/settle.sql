-- name: settle_begin
-- Whether there are order keys, and the queues that limit how many tasks of a key run, if the session is alive.
SELECT
    EXISTS (SELECT 1 FROM pitboss_order_heads) AS ordered,
    (SELECT json_group_array(name) FROM pitboss_queues WHERE max_per_key IS NOT NULL) AS capped
FROM pitboss_sessions
WHERE number = ? AND ended = 0 AND expires_at > ?

-- name: settle_plainly
-- ?1 is the moment, ?2 the session; a row is an id, a claim's number, a result, a worker and how long it ran.
-- The session does not change: it is assigned so that ?2 occurs before the rows, and their values are numbered after it.
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
    AND (claim_expires_at IS NULL OR claim_expires_at > ?1)

-- name: settle_read
SELECT json_group_array(json_array(
    state, session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at, started_at,
    resource, json(coalesce(tried, '[]')), rotations, worker, claim_lasts, claim_expires_at,
    rowid, id, queue, unique_key, batch, member, order_key, handler,
    CASE
        WHEN partition IS NOT NULL
            THEN EXISTS (SELECT 1 FROM pitboss_queues WHERE name = pitboss_tasks.queue AND max_per_key IS NOT NULL)
        ELSE 0
    END
))
FROM pitboss_tasks
WHERE id IN (SELECT value FROM json_each(?))

-- name: settle_completed
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

-- name: settle_end
UPDATE pitboss_tasks
SET
    state = told.column2,
    outcome = told.column3,
    attempts = told.column4,
    losses = told.column5,
    crashes = told.column6,
    result = told.column7,
    error = CASE told.column8 WHEN 1 THEN told.column9 ELSE error END,
    fingerprint = CASE told.column8 WHEN 1 THEN told.column10 ELSE fingerprint END,
    reason = told.column11,
    run_at = told.column12,
    worker = told.column13,
    started_at = told.column14,
    finished_at = told.column15,
    cancel_asked = 0,
    tried = told.column16,
    rotations = told.column17
FROM (
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
) AS told
WHERE pitboss_tasks.rowid = told.column1

-- name: settle_progress
-- Without a percentage only the time limit of the claim changes.
UPDATE pitboss_tasks
SET
    progress = coalesce(told.column2, progress),
    note = CASE WHEN told.column2 IS NULL THEN note ELSE told.column3 END,
    claim_expires_at = told.column4
FROM (
    VALUES (?, ?, ?, ?)
) AS told
WHERE pitboss_tasks.rowid = told.column1
