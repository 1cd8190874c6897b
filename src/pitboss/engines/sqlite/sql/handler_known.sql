SELECT 1 FROM pitboss_handlers WHERE name = ?
