SELECT 1 FROM handlers WHERE name = ?
