DELETE FROM handlers WHERE name IN (SELECT value FROM json_each(?))
