DELETE FROM pitboss_handlers WHERE name IN (SELECT value FROM json_each(?))
