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
