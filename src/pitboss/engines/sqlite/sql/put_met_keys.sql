SELECT json_group_array(json_array(uniques.key, tasks.id, tasks.state, tasks.reason))
FROM uniques
JOIN tasks ON tasks.id = uniques.task
WHERE uniques.key IN (SELECT value FROM json_each(?1)) AND (uniques.until IS NULL OR uniques.until > ?2)
