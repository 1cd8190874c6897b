UPDATE pitboss_batches
SET status = 'queued', rank = ?2, started_at = NULL, finished_at = NULL, reason = NULL
WHERE id = ?1
