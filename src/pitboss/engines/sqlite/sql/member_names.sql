SELECT json_group_array(json_array(
    number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
))
FROM pitboss_resources
WHERE pool = ? AND name IN (SELECT value FROM json_each(?))
