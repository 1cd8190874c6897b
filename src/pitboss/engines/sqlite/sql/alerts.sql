-- name: alert_notes_get
SELECT body, version FROM pitboss_alert_notes

-- name: alert_notes_begin
INSERT OR IGNORE INTO pitboss_alert_notes (one, version, body) VALUES (1, 1, ?)

-- name: alert_notes_set
UPDATE pitboss_alert_notes SET body = ?, version = version + 1 WHERE version = ?

-- name: silence_list
SELECT rule, until, at, silenced_by, reason FROM pitboss_silences WHERE until > ? ORDER BY rule

-- name: silence_get
SELECT rule, until, at, silenced_by, reason FROM pitboss_silences WHERE rule = ? AND until > ?

-- name: silence_put
INSERT INTO pitboss_silences (rule, until, at, silenced_by, reason) VALUES (?, ?, ?, ?, ?)

-- name: silence_remove
DELETE FROM pitboss_silences WHERE rule = ? OR until <= ?
