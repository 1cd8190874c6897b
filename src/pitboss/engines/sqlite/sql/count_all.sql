SELECT coalesce(sum(n), 0) FROM pitboss_counts
