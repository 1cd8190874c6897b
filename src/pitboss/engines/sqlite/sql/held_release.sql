UPDATE pitboss_tasks
SET state = CASE WHEN run_at > ? THEN 'scheduled' ELSE 'pending' END, reason = NULL
WHERE rowid IN (SELECT value FROM json_each(?))
