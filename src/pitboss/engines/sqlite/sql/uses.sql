-- name: use_add
INSERT OR REPLACE INTO pitboss_uses (resource, seq, at) VALUES (?, ?, ?)

-- name: use_at
SELECT json_group_array(json_array(pitboss_uses.resource, pitboss_uses.seq, pitboss_uses.at))
FROM json_each(?) AS asked
CROSS JOIN pitboss_uses
WHERE pitboss_uses.resource = asked.value ->> 0 AND pitboss_uses.seq = asked.value ->> 1

-- name: use_forget
-- The uses of a member up to a number.
DELETE FROM pitboss_uses
WHERE
    (resource, seq) IN (
        SELECT old.resource, old.seq
        FROM (
            VALUES (?, ?)
        ) AS told
        CROSS JOIN pitboss_uses AS old
        WHERE old.resource = told.column1 AND old.seq <= told.column2
    )

-- name: use_forget_all
DELETE FROM pitboss_uses WHERE resource IN (SELECT value FROM json_each(?))
