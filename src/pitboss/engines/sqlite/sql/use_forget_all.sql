DELETE FROM pitboss_uses WHERE resource IN (SELECT value FROM json_each(?))
