UPDATE pitboss_batches SET status = ?2, started_at = ?3, finished_at = ?4, reason = ?5 WHERE id = ?1
