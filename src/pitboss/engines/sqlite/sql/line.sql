SELECT rank, id, status FROM pitboss_batches WHERE finished_at IS NULL AND lane = ? ORDER BY rank, id
