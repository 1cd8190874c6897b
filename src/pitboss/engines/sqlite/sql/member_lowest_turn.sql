SELECT coalesce(min(coalesce(record ->> '$.turn', 0)), 0) FROM pitboss_resources WHERE pool = ?
