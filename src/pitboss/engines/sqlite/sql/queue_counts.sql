SELECT state, n FROM pitboss_counts WHERE queue = ? AND n > 0
