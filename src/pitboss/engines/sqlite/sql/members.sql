-- name: member_put
INSERT INTO pitboss_resources (
    pool, name, stage, rank, last_used_at, available_at, in_use, enabled, blacklisted_until, record, labels, about
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (pool, name) DO UPDATE SET
stage = excluded.stage,
rank = excluded.rank,
last_used_at = excluded.last_used_at,
available_at = excluded.available_at,
in_use = excluded.in_use,
enabled = excluded.enabled,
blacklisted_until = excluded.blacklisted_until,
record = excluded.record,
labels = excluded.labels,
about = excluded.about

-- name: member_write
UPDATE pitboss_resources
SET
    stage = told.column2,
    rank = told.column3,
    last_used_at = told.column4,
    available_at = told.column5,
    in_use = told.column6,
    blacklisted_until = told.column7,
    record = told.column8
FROM (
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
) AS told
WHERE pitboss_resources.number = told.column1

-- name: member_remove
DELETE FROM pitboss_resources WHERE number IN (SELECT value FROM json_each(?))

-- name: member_list
SELECT number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
FROM pitboss_resources
WHERE pool = ?
ORDER BY name

-- name: member_list_named
SELECT number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
FROM pitboss_resources
WHERE pool = ? AND name IN (SELECT value FROM json_each(?))
ORDER BY name

-- name: member_read_all
SELECT json_group_array(json_array(
    number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
))
FROM pitboss_resources
WHERE pool = ?

-- name: member_read_named
SELECT json_group_array(json_array(
    number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
))
FROM pitboss_resources
WHERE pool = ? AND name IN (SELECT value FROM json_each(?))

-- name: member_read
SELECT json_group_array(json_array(
    number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
))
FROM pitboss_resources
WHERE number IN (SELECT value FROM json_each(?))

-- name: member_wake
UPDATE pitboss_resources SET stage = 'ready' WHERE pool = ? AND stage = 'away' AND available_at <= ?

-- name: member_ready
SELECT json_group_array(json_array(
    number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
))
FROM (
    SELECT number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
    FROM pitboss_resources
    WHERE
        stage = 'ready'
        AND pool = ?1
        -- A clock that was set back makes some that were ready wait again.
        AND available_at <= ?6
        AND (rank, last_used_at, name) > (?2, ?3, ?4)
        AND NOT EXISTS (SELECT 1 FROM json_each(?5) AS wanted WHERE instr(labels, wanted.value) = 0)
    ORDER BY rank, last_used_at, name
    LIMIT ?7
)

-- name: member_last_ready
SELECT json_group_array(json_array(
    number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
))
FROM (
    SELECT number, name, stage, rank, last_used_at, available_at, in_use, enabled, record, labels, about
    FROM pitboss_resources
    WHERE stage = 'ready' AND pool = ?1 AND available_at <= ?2
    ORDER BY rank DESC, last_used_at DESC, name DESC
    LIMIT 1
)

-- name: member_serving
-- Those in service (`model.leasing`), counted to ?4 at most: a higher number makes no difference.
SELECT count(*)
FROM (
    SELECT 1
    FROM pitboss_resources
    WHERE
        pool = ?1
        AND enabled = 1
        AND blacklisted_until <= ?3
        AND coalesce(record ->> '$.cooldown_until', 0) <= ?3
        AND NOT EXISTS (SELECT 1 FROM json_each(?2) AS wanted WHERE instr(labels, wanted.value) = 0)
    LIMIT ?4
)

-- name: member_enabled
SELECT count(*) FROM pitboss_resources WHERE pool = ? AND enabled = 1

-- name: member_compared
SELECT coalesce(record ->> '$.compared', 0) FROM pitboss_resources WHERE pool = ? AND enabled = 1 AND number <> ?

-- name: member_blacklisted
SELECT count(*)
FROM pitboss_resources
WHERE blacklisted_until > 0 AND pool = ? AND blacklisted_until > ? AND enabled = 1 AND number <> ?

-- name: member_lowest_turn
SELECT coalesce(min(coalesce(record ->> '$.turn', 0)), 0) FROM pitboss_resources WHERE pool = ?

-- name: departed_put
INSERT OR REPLACE INTO pitboss_departed (pool, name, until, kept) VALUES (?, ?, ?, ?)

-- name: departed_list
SELECT name, kept FROM pitboss_departed WHERE pool = ?1 AND until > ?2 AND name IN (SELECT value FROM json_each(?3))

-- name: departed_end
DELETE FROM pitboss_departed WHERE pool = ?1 AND name IN (SELECT value FROM json_each(?2))

-- name: departed_forget
DELETE FROM pitboss_departed WHERE until <= ?

-- name: binding_get
SELECT resource FROM pitboss_bindings WHERE pool = ? AND key = ? AND until > ?

-- name: binding_set
INSERT OR REPLACE INTO pitboss_bindings (pool, key, resource, until) VALUES (?, ?, ?, ?)

-- name: binding_forget
DELETE FROM pitboss_bindings WHERE until <= ?

-- name: strike_add
INSERT OR REPLACE INTO pitboss_strikes (pool, destination, resource, at) VALUES (?, ?, ?, ?)

-- name: strike_list
SELECT resource FROM pitboss_strikes WHERE pool = ? AND destination = ? AND at > ? ORDER BY resource

-- name: strike_forget
DELETE FROM pitboss_strikes WHERE pool = ? AND destination = ?

-- name: strike_forget_old
DELETE FROM pitboss_strikes WHERE at <= ?
