UPDATE pitboss_tasks SET reason = 'batch' WHERE rowid IN (SELECT value FROM json_each(?))
