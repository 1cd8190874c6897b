SELECT json_group_array(json_array(pitboss_uniques.key, pitboss_tasks.id, pitboss_tasks.state, pitboss_tasks.reason))
FROM pitboss_uniques
JOIN pitboss_tasks ON pitboss_tasks.id = pitboss_uniques.task
WHERE pitboss_uniques.key IN (SELECT value FROM json_each(?1)) AND (pitboss_uniques.until IS NULL OR pitboss_uniques.until > ?2)
