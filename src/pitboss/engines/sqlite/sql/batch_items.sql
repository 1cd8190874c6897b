SELECT queue, state, n FROM pitboss_batch_counts WHERE batch = ? AND n > 0
