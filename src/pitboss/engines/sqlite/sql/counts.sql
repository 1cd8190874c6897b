SELECT queue, state, n FROM pitboss_counts WHERE n > 0
