SELECT name FROM handlers
