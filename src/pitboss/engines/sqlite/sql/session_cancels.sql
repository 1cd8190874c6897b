SELECT json_group_array(json_array(id, claim)) FROM pitboss_tasks WHERE state = 'running' AND cancel_asked = 1 AND session = ?
