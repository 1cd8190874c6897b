SELECT json_group_array(json_array(id, state, reason)) FROM pitboss_tasks WHERE id IN (SELECT value FROM json_each(?))
