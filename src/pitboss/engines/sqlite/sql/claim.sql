-- name: claim_begin
-- Whether batches run, if the session is alive.
SELECT EXISTS (SELECT 1 FROM pitboss_batches WHERE status = 'running')
FROM pitboss_sessions
WHERE number = ? AND ended = 0 AND expires_at > ?

-- name: claim_queue
SELECT
    name,
    rate,
    (
        SELECT resources
        FROM pitboss_handlers AS bound
        WHERE bound.queue = pitboss_queues.name AND bound.resources IS NOT NULL
        ORDER BY bound.name
        LIMIT 1
    ) AS pool,
    partition_help,
    max_per_key,
    coalesce((SELECT n FROM pitboss_counts WHERE queue = name AND state = 'pending'), 0) AS pending,
    coalesce((SELECT n FROM pitboss_counts WHERE queue = name AND state = 'scheduled'), 0) AS scheduled
FROM pitboss_queues
WHERE name = ? AND paused = 0

-- name: claim_queues
SELECT
    name,
    rate,
    (
        SELECT resources
        FROM pitboss_handlers AS bound
        WHERE bound.queue = pitboss_queues.name AND bound.resources IS NOT NULL
        ORDER BY bound.name
        LIMIT 1
    ) AS pool,
    partition_help,
    max_per_key,
    coalesce(sum(CASE state WHEN 'pending' THEN n ELSE 0 END), 0) AS pending,
    coalesce(sum(CASE state WHEN 'scheduled' THEN n ELSE 0 END), 0) AS scheduled,
    coalesce((SELECT min(remote) FROM pitboss_handlers AS known WHERE known.queue = pitboss_queues.name), 0) AS remote
FROM pitboss_queues
LEFT JOIN pitboss_counts ON pitboss_counts.queue = pitboss_queues.name AND pitboss_counts.state IN ('pending', 'scheduled') AND pitboss_counts.n > 0
WHERE paused = 0
GROUP BY name
HAVING pending + scheduled > 0 OR partition_help IS NOT NULL

-- name: claim_due_at
SELECT min(run_at) FROM pitboss_tasks WHERE state = 'scheduled' AND queue = ?

-- name: claim_due_items
SELECT batch, count(*)
FROM (
    SELECT batch FROM pitboss_tasks WHERE state = 'scheduled' AND queue = ? AND run_at <= ? ORDER BY run_at LIMIT ?
)
WHERE batch IS NOT NULL
GROUP BY batch

-- name: claim_due
UPDATE pitboss_tasks
SET state = 'pending'
WHERE rowid IN (
    SELECT rowid FROM pitboss_tasks WHERE state = 'scheduled' AND queue = ? AND run_at <= ? ORDER BY run_at LIMIT ?
)

-- name: claim_next
SELECT json_group_array(json_array(
    priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at
))
FROM (
    SELECT
        priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
        created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at
    FROM pitboss_tasks
    WHERE state = 'pending' AND queue = ?
    ORDER BY priority, id
    LIMIT ?
)

-- name: claim_next_of
-- The same for some handlers. Tasks past their expiry are among them, whatever their handler.
SELECT json_group_array(json_array(
    priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at
))
FROM (
    SELECT
        priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
        created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at
    FROM pitboss_tasks
    WHERE
        state = 'pending'
        AND queue = ?1
        AND (handler IN (SELECT value FROM json_each(?2)) OR expires_at <= ?3)
    ORDER BY priority, id
    LIMIT ?4
)

-- name: claim_ranks
-- What an order needs of the first pending tasks of a queue, and of some handlers (NULL: of all).
SELECT json_group_array(json_array(priority, id, task, created_at, attempts))
FROM (
    SELECT priority, id, rowid AS task, created_at, attempts
    FROM pitboss_tasks
    WHERE state = 'pending' AND queue = ?1 AND (?2 IS NULL OR handler IN (SELECT value FROM json_each(?2)))
    ORDER BY priority, id
    LIMIT ?3
)

-- name: claim_named
SELECT json_group_array(json_array(
    priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at, partition
))
FROM pitboss_tasks
WHERE rowid IN (SELECT value FROM json_each(?))

-- name: claim_again
-- What still runs under these keys.
SELECT json_group_array(json_array(
    priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at,
    claim_key, session, started_at, claim_expires_at
))
FROM pitboss_tasks
WHERE state = 'running' AND claim_key IN (SELECT value FROM json_each(?1)) AND claim_expires_at > ?2

-- name: claim_sift
SELECT
    priority, id, rowid, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at
FROM pitboss_tasks
WHERE
    state = 'pending'
    AND queue = ?1
    AND (
        expires_at <= ?3
        OR (
            handler NOT IN (SELECT value FROM json_each(?2))
            AND (?4 IS NULL OR handler IN (SELECT value FROM json_each(?4)))
        )
    )
ORDER BY priority, id

-- name: claim_bound
-- A portion of the pending tasks of a queue that is bound to a pool, after the rank (?5, ?6).
SELECT json_group_array(json_array(
    priority, id, task, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
    created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at
))
FROM (
    SELECT
        priority, id, rowid AS task, handler, queue, params, attempts, max_attempts, timeout, losses, crashes,
        created_at, expires_at, parent, tags, claim, unique_key, batch, want, tried, rotations, meta, run_at
    FROM pitboss_tasks
    WHERE
        state = 'pending'
        AND queue = ?1
        AND (priority, id) > (?5, ?6)
        AND (
            expires_at <= ?3
            OR (
                handler NOT IN (SELECT value FROM json_each(?2))
                AND (?4 IS NULL OR handler IN (SELECT value FROM json_each(?4)))
            )
        )
    ORDER BY priority, id
    LIMIT ?7
)

-- name: claim_take
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
    member = NULL,
    claim_lasts = NULL,
    claim_expires_at = NULL,
    claim_key = NULL
WHERE rowid IN (SELECT value FROM json_each(?))

-- name: claim_take_each
-- ?1 is the session, ?2 the moment. A row is a task, the id and the number of its member, and of a claim with a time limit
-- of its own the worker, how long it lasts and its key.
UPDATE pitboss_tasks
SET
    state = 'running',
    session = ?1,
    claim = claim + 1,
    started_at = ?2,
    claim_expires_at = ?2 + told.column5,
    reason = NULL,
    progress = NULL,
    note = NULL,
    resource = told.column2,
    member = told.column3,
    worker = told.column4,
    claim_lasts = told.column5,
    claim_key = told.column6
FROM (
    VALUES (?, ?, ?, ?, ?, ?)
) AS told
WHERE pitboss_tasks.rowid = told.column1

-- name: claim_expire
UPDATE pitboss_tasks
SET state = 'cancelled', reason = 'expired', finished_at = ?
WHERE rowid IN (SELECT value FROM json_each(?))

-- name: claim_hold
UPDATE pitboss_tasks SET state = 'held', reason = 'handler' WHERE rowid IN (SELECT value FROM json_each(?))

-- name: claim_held
SELECT pitboss_tasks.resource, pitboss_tasks.member
FROM pitboss_tasks
JOIN pitboss_sessions ON pitboss_sessions.number = pitboss_tasks.session
WHERE
    pitboss_tasks.id = ?1
    AND pitboss_tasks.state = 'running'
    AND pitboss_tasks.session = ?2
    AND pitboss_tasks.claim = ?3
    AND pitboss_sessions.ended = 0
    AND pitboss_sessions.expires_at > ?4
