SELECT task FROM pitboss_uniques WHERE key = ? AND (until IS NULL OR until > ?)
