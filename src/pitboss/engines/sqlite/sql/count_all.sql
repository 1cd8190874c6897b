SELECT coalesce(sum(n), 0) FROM counts
