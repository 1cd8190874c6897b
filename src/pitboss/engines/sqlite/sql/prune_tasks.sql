DELETE FROM pitboss_tasks WHERE id IN (SELECT value FROM json_each(?))
