-- name: app_get
SELECT fingerprint FROM pitboss_apps WHERE name = ?

-- name: app_put
-- A new version of an app keeps its place among the others.
INSERT INTO pitboss_apps (name, fingerprint, queues, subscriptions, events) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
fingerprint = excluded.fingerprint,
queues = excluded.queues,
subscriptions = excluded.subscriptions,
events = excluded.events

-- name: app_list
SELECT name, queues, subscriptions, events FROM pitboss_apps ORDER BY name

-- name: app_subscriptions
SELECT subscriptions FROM pitboss_apps ORDER BY rowid

-- name: fingerprint_add
INSERT INTO pitboss_fingerprints (app, fingerprint) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: fingerprint_list
SELECT fingerprint FROM pitboss_fingerprints WHERE app = ?

-- name: declarer_note
INSERT OR REPLACE INTO pitboss_declarers (app, session, fingerprint) VALUES (?, ?, ?)

-- name: declarer_list_alive
-- What live sessions declared for an app.
SELECT fingerprint
FROM pitboss_declarers JOIN pitboss_sessions ON number = session
WHERE app = ? AND ended = 0 AND expires_at > ?

-- name: declarer_forget
DELETE FROM pitboss_declarers WHERE NOT EXISTS (SELECT 1 FROM pitboss_sessions WHERE number = session)
