-- name: desired_version
SELECT value FROM pitboss_meta WHERE name = 'desired'

-- name: desired_advance
UPDATE pitboss_meta SET value = value + 1 WHERE name = 'desired' RETURNING value

-- name: wish_set
INSERT INTO pitboss_wishes (key, value, version, wished_by)
VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, wished_by = excluded.wished_by

-- name: wish_list
SELECT key, value, version, wished_by FROM pitboss_wishes WHERE version > ? ORDER BY version
