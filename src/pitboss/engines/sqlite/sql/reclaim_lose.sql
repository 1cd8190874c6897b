UPDATE pitboss_tasks
SET state = 'pending', outcome = 'lost', losses = losses + 1, session = NULL, started_at = NULL
WHERE rowid IN (SELECT value FROM json_each(?))
