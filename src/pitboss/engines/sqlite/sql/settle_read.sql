SELECT json_group_array(json_array(
    rowid, id, queue, state, session, claim, attempts, losses, crashes, unique_key, cancel_asked, outcome, reason,
    run_at, started_at, batch, resource, member, tried, rotations
))
FROM pitboss_tasks
WHERE id IN (SELECT value FROM json_each(?))
