DELETE FROM attempts WHERE task IN (SELECT value FROM json_each(?))
