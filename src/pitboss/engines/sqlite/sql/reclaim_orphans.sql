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
