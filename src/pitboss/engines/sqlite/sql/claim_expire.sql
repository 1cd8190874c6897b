UPDATE pitboss_tasks
SET state = 'cancelled', reason = 'expired', finished_at = ?
WHERE rowid IN (SELECT value FROM json_each(?))
