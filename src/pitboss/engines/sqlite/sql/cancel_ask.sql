UPDATE pitboss_tasks SET cancel_asked = 1, reason = ? WHERE id IN (SELECT value FROM json_each(?))
