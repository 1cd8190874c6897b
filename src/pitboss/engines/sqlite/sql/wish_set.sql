INSERT INTO pitboss_wishes (key, value, version, wished_by)
VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, wished_by = excluded.wished_by
