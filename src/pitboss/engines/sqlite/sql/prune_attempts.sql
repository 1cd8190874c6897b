DELETE FROM pitboss_attempts WHERE task IN (SELECT value FROM json_each(?))
