-- name: key_take
INSERT INTO pitboss_uniques (key, task, until)
VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET task = excluded.task, until = excluded.until

-- name: key_free
DELETE FROM pitboss_uniques
WHERE
    until IS NULL
    AND (task, key) IN (
        VALUES (?, ?)
    )

-- name: key_holder
SELECT task FROM pitboss_uniques WHERE key = ? AND (until IS NULL OR until > ?)

-- name: key_remove
DELETE FROM pitboss_uniques
WHERE key IN (SELECT value FROM json_each(?2)) AND task IN (SELECT value FROM json_each(?1))
