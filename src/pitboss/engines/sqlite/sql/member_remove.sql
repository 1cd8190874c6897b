DELETE FROM pitboss_resources WHERE number IN (SELECT value FROM json_each(?))
