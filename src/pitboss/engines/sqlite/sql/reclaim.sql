-- name: reclaim_orphans
-- `seen` hops from one session with running tasks to the next, so that a sweep does not read what the living run.
WITH RECURSIVE seen (session) AS (
    SELECT min(session) FROM pitboss_tasks WHERE state = 'running'
    UNION ALL
    SELECT (SELECT min(pitboss_tasks.session) FROM pitboss_tasks WHERE pitboss_tasks.state = 'running' AND pitboss_tasks.session > seen.session)
    FROM seen
    WHERE seen.session IS NOT NULL
)

SELECT json_group_array(json_array(
    state, session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at, started_at,
    resource, json(coalesce(tried, '[]')), rotations, task, id, queue, unique_key, batch, member
))
FROM (
    SELECT
        state, pitboss_tasks.session AS session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at,
        started_at, resource, tried, rotations, pitboss_tasks.rowid AS task, id, queue, unique_key, batch, member
    FROM seen
    CROSS JOIN pitboss_tasks
    WHERE
        pitboss_tasks.state = 'running'
        AND pitboss_tasks.session = seen.session
        AND NOT EXISTS (
            SELECT 1 FROM pitboss_sessions WHERE number = seen.session AND ended = 0 AND expires_at > ?1
        )
    LIMIT ?2
)

-- name: reclaim_lose
UPDATE pitboss_tasks
SET
    state = ?2,
    reason = ?3,
    outcome = 'lost',
    losses = losses + 1,
    session = NULL,
    started_at = NULL
WHERE rowid IN (SELECT value FROM json_each(?1))

-- name: reclaim_cancel
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
