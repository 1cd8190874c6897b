SELECT id, status FROM pitboss_batches WHERE id IN (SELECT value FROM json_each(?))
