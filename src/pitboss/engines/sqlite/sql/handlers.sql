-- name: handler_add
INSERT INTO pitboss_handlers (name, queue, policy, schema, resources)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
queue = excluded.queue,
policy = excluded.policy,
schema = excluded.schema,
resources = excluded.resources

-- name: handler_remove
DELETE FROM pitboss_handlers WHERE name IN (SELECT value FROM json_each(?))

-- name: handler_known
SELECT 1 FROM pitboss_handlers WHERE name = ?

-- name: handler_list
SELECT name, queue, policy, schema, resources FROM pitboss_handlers ORDER BY name

-- name: handler_list_served
SELECT DISTINCT name
FROM pitboss_handlers
WHERE name IN (
    SELECT known.value FROM pitboss_sessions, json_each(pitboss_sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?
)

-- name: handler_list_live
SELECT DISTINCT known.value FROM pitboss_sessions, json_each(pitboss_sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?

-- name: handler_bindings
-- Each queue with the pool of the first of its handlers, by name; SQLite takes `resources` from the row of the minimum.
SELECT queue, resources, min(name) AS handler FROM pitboss_handlers WHERE resources IS NOT NULL GROUP BY queue
