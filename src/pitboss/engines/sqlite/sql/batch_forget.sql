DELETE FROM pitboss_batches WHERE id = ?
