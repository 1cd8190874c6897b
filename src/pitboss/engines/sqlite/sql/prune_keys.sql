DELETE FROM pitboss_uniques
WHERE key IN (SELECT value FROM json_each(?2)) AND task IN (SELECT value FROM json_each(?1))
