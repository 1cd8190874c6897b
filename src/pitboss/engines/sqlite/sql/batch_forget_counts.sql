DELETE FROM pitboss_batch_counts WHERE batch = ?
