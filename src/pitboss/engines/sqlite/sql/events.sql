-- name: event_met
-- Those of these events that are stored, with the handlers that they went to; and why new ones are refused.
SELECT json_group_array(json_array(id, json(handlers))), (SELECT refusing FROM pitboss_leader)
FROM pitboss_events WHERE id IN (SELECT value FROM json_each(?))

-- name: event_add
INSERT INTO pitboss_events (id, name, data, key, published_by, published_at, handlers)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: event_list_named
SELECT id, name, data, key, published_by, published_at, handlers
FROM pitboss_events
WHERE id IN (SELECT value FROM json_each(?))

-- name: event_list
SELECT id, name, data, key, published_by, published_at, handlers
FROM pitboss_events
WHERE id < ?1
ORDER BY id DESC
LIMIT ?2

-- name: event_list_of
SELECT id, name, data, key, published_by, published_at, handlers
FROM pitboss_events
WHERE name = ?3 AND id < ?1
ORDER BY id DESC
LIMIT ?2

-- name: event_forget
DELETE FROM pitboss_events
WHERE rowid IN (SELECT rowid FROM pitboss_events WHERE published_at < ? ORDER BY published_at LIMIT ?)
