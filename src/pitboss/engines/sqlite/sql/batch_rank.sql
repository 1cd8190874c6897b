UPDATE pitboss_batches SET rank = ?2 WHERE id = ?1
