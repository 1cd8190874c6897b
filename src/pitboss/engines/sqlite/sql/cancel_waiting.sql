UPDATE pitboss_tasks
SET state = 'cancelled', reason = ?, finished_at = ?
WHERE id IN (SELECT value FROM json_each(?))
