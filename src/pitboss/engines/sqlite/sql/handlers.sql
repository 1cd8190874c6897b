-- name: handler_add
INSERT INTO pitboss_handlers (name, queue, policy, schema, resources, remote, about, number, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
queue = excluded.queue,
policy = excluded.policy,
schema = excluded.schema,
resources = excluded.resources,
remote = excluded.remote,
about = excluded.about,
updated_at = excluded.updated_at

-- name: handler_remove
DELETE FROM pitboss_handlers WHERE name IN (SELECT value FROM json_each(?))

-- name: handler_known
SELECT 1 FROM pitboss_handlers WHERE name = ?

-- name: handler_list
SELECT name, queue, policy, schema, resources, remote, about, number, created_at, updated_at
FROM pitboss_handlers
ORDER BY name

-- name: handler_list_named
SELECT name, queue, policy, schema, resources, remote, about, number, created_at, updated_at
FROM pitboss_handlers
WHERE name IN (SELECT value FROM json_each(?))

-- name: handler_next_number
SELECT coalesce(max(number), 0) + 1 FROM pitboss_handlers

-- name: handler_list_served
-- Registered, and known to a live session or run by remote workers.
SELECT name
FROM pitboss_handlers
WHERE
    remote = 1
    OR name IN (
        SELECT known.value FROM pitboss_sessions, json_each(pitboss_sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?
    )

-- name: handler_list_live
SELECT known.value FROM pitboss_sessions, json_each(pitboss_sessions.handlers) AS known WHERE ended = 0 AND expires_at > ?
UNION
SELECT name FROM pitboss_handlers WHERE remote = 1

-- name: handler_bindings
-- Each queue with the pool of the first of its handlers, by name; SQLite takes `resources` from the row of the minimum.
SELECT queue, resources, min(name) AS handler FROM pitboss_handlers WHERE resources IS NOT NULL GROUP BY queue

-- name: handler_list_routed
-- The condition is that of the index, word for word, or SQLite would not use it.
SELECT name, about
FROM pitboss_handlers INDEXED BY pitboss_handlers_routed
WHERE instr(about, '"fallback"') > 0 OR instr(about, '"dead_letters"') > 0
