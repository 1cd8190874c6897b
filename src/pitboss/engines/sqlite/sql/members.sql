SELECT number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
FROM pitboss_resources
WHERE pool = ?
ORDER BY name
