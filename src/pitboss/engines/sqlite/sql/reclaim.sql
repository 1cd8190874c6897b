-- name: reclaim_orphans
-- `seen` hops from one session with running tasks to the next, so that a sweep does not read what the living run. Claims
-- with a time limit of their own outlive their session.
WITH RECURSIVE seen (session) AS (
    SELECT min(session) FROM pitboss_tasks WHERE state = 'running'
    UNION ALL
    SELECT (SELECT min(pitboss_tasks.session) FROM pitboss_tasks WHERE pitboss_tasks.state = 'running' AND pitboss_tasks.session > seen.session)
    FROM seen
    WHERE seen.session IS NOT NULL
)

SELECT json_group_array(json_array(
    state, session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at, started_at,
    resource, json(coalesce(tried, '[]')), rotations, worker, claim_lasts, claim_expires_at,
    task, id, queue, unique_key, batch, member, order_key, handler, capped
))
FROM (
    SELECT
        state, pitboss_tasks.session AS session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at,
        started_at, resource, tried, rotations, worker, claim_lasts, claim_expires_at,
        pitboss_tasks.rowid AS task, id, queue, unique_key, batch, member, order_key, handler,
        CASE
            WHEN partition IS NOT NULL
                THEN EXISTS (SELECT 1 FROM pitboss_queues WHERE name = pitboss_tasks.queue AND max_per_key IS NOT NULL)
            ELSE 0
        END AS capped
    FROM seen
    CROSS JOIN pitboss_tasks
    WHERE
        pitboss_tasks.state = 'running'
        AND pitboss_tasks.session = seen.session
        AND pitboss_tasks.claim_expires_at IS NULL
        AND NOT EXISTS (
            SELECT 1 FROM pitboss_sessions WHERE number = seen.session AND ended = 0 AND expires_at > ?1
        )
    LIMIT ?2
)

-- name: reclaim_ran_out
-- Claims past a time limit of their own.
SELECT json_group_array(json_array(
    state, session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at, started_at,
    resource, json(coalesce(tried, '[]')), rotations, worker, claim_lasts, claim_expires_at,
    task, id, queue, unique_key, batch, member, order_key, handler, capped
))
FROM (
    SELECT
        state, session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at,
        started_at, resource, tried, rotations, worker, claim_lasts, claim_expires_at,
        rowid AS task, id, queue, unique_key, batch, member, order_key, handler,
        CASE
            WHEN partition IS NOT NULL
                THEN EXISTS (SELECT 1 FROM pitboss_queues WHERE name = pitboss_tasks.queue AND max_per_key IS NOT NULL)
            ELSE 0
        END AS capped
    FROM pitboss_tasks
    WHERE state = 'running' AND claim_expires_at <= ?1
    LIMIT ?2
)

-- name: reclaim_lose
UPDATE pitboss_tasks
SET
    state = ?2,
    reason = ?3,
    outcome = 'lost',
    losses = losses + 1,
    crashes = crashes + (claim_expires_at IS NOT NULL),
    session = NULL,
    started_at = NULL
WHERE rowid IN (SELECT value FROM json_each(?1))

-- name: reclaim_end
-- Cancelled or failed for good. Without an error the last one stays.
UPDATE pitboss_tasks
SET
    state = ?2,
    reason = ?3,
    error = coalesce(?4, error),
    fingerprint = CASE WHEN ?4 IS NULL THEN fingerprint ELSE ?5 END,
    finished_at = ?6,
    outcome = 'lost',
    losses = losses + 1,
    crashes = crashes + (claim_expires_at IS NOT NULL),
    attempts = attempts + 1,
    session = NULL,
    cancel_asked = 0
WHERE rowid IN (SELECT value FROM json_each(?1))

-- name: held_list
SELECT json_group_array(json_array(task, queue, state, batch))
FROM (
    SELECT
        pitboss_tasks.rowid AS task,
        pitboss_tasks.queue AS queue,
        pitboss_tasks.batch AS batch,
        CASE
            WHEN (SELECT status FROM pitboss_batches WHERE id = pitboss_tasks.batch) <> 'running' THEN 'held'
            WHEN pitboss_tasks.run_at > ?2 THEN 'scheduled'
            ELSE 'pending'
        END AS state
    FROM pitboss_tasks
    WHERE
        pitboss_tasks.state = 'held'
        AND pitboss_tasks.handler IN (SELECT value FROM json_each(?1))
        AND pitboss_tasks.reason = 'handler'
    LIMIT ?3
)

-- name: held_release
UPDATE pitboss_tasks
SET state = CASE WHEN run_at > ? THEN 'scheduled' ELSE 'pending' END, reason = NULL
WHERE rowid IN (SELECT value FROM json_each(?))

-- name: held_for_batch
UPDATE pitboss_tasks SET reason = 'batch' WHERE rowid IN (SELECT value FROM json_each(?))
