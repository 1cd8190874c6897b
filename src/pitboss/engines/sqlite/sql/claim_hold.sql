UPDATE pitboss_tasks SET state = 'held', reason = 'handler' WHERE rowid IN (SELECT value FROM json_each(?))
