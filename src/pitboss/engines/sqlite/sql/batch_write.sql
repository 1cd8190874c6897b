UPDATE pitboss_batches SET status = ?2, rank = ?3, started_at = ?4, finished_at = ?5, reason = ?6 WHERE id = ?1
