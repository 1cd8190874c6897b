-- name: schedule_get
SELECT body FROM pitboss_schedules WHERE name = ?

-- name: schedule_list
SELECT body FROM pitboss_schedules WHERE NOT withdrawn ORDER BY name LIMIT ?

-- name: schedule_list_after
SELECT body FROM pitboss_schedules WHERE NOT withdrawn AND name > ?2 ORDER BY name LIMIT ?1

-- name: schedule_list_named
SELECT body FROM pitboss_schedules WHERE NOT withdrawn AND name IN (SELECT value FROM json_each(?))

-- name: schedule_list_of
-- Those that an app declares.
SELECT body FROM pitboss_schedules WHERE app = ? AND NOT withdrawn

-- name: schedule_read
-- Those with these names, each with its row. The bodies are JSON, which SQLite need not read.
SELECT '[' || coalesce(group_concat('[' || rowid || ',' || body || ']'), '') || ']'
FROM pitboss_schedules
WHERE name IN (SELECT value FROM json_each(?))

-- name: schedule_versions
-- Those with these names that are not paused.
SELECT json_group_array(json_array(rowid, name, version))
FROM pitboss_schedules
WHERE name IN (SELECT value FROM json_each(?)) AND paused = 0

-- name: schedule_due
SELECT next_at, body
FROM pitboss_schedules
WHERE paused = 0 AND next_at IS NOT NULL AND next_at <= ?
ORDER BY next_at, name
LIMIT ?

-- name: schedule_next
SELECT min(next_at) FROM pitboss_schedules WHERE paused = 0 AND next_at IS NOT NULL AND next_at > ?

-- name: schedule_put
INSERT INTO pitboss_schedules (name, app, next_at, paused, version, withdrawn, body)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
app = excluded.app,
next_at = excluded.next_at,
paused = excluded.paused,
version = excluded.version,
withdrawn = excluded.withdrawn,
body = excluded.body

-- name: schedule_advance
UPDATE pitboss_schedules
SET next_at = told.column2, version = told.column3, body = told.column4
FROM (
    VALUES (?, ?, ?, ?)
) AS told
WHERE pitboss_schedules.rowid = told.column1

-- name: schedule_remove
DELETE FROM pitboss_schedules WHERE name IN (SELECT value FROM json_each(?))
