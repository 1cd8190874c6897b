SELECT json_group_array(json_array(
    state, session, claim, attempts, losses, crashes, cancel_asked, outcome, reason, run_at, started_at,
    resource, json(coalesce(tried, '[]')), rotations, rowid, id, queue, unique_key, batch, member
))
FROM pitboss_tasks
WHERE id IN (SELECT value FROM json_each(?))
