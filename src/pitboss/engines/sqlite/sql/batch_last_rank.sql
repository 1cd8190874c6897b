SELECT max(rank) FROM pitboss_batches WHERE finished_at IS NULL AND lane = ?
