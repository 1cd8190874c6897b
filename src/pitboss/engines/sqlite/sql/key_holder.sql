SELECT task FROM uniques WHERE key = ? AND (until IS NULL OR until > ?)
