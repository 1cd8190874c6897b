INSERT INTO pitboss_uniques (key, task, until)
VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET task = excluded.task, until = excluded.until
