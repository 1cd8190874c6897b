UPDATE pitboss_meta SET value = value + 1 WHERE name = 'desired' RETURNING value
