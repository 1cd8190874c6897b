-- name: happening_add
INSERT OR IGNORE INTO pitboss_happenings (id, at, kind, severity, subject, text, host, manager, details, count)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: happening_list
SELECT id, at, kind, severity, subject, text, host, manager, details, count
FROM pitboss_happenings
WHERE id >= ?1 AND id < ?2
    AND (?3 = '[]' OR kind IN (SELECT value FROM json_each(?3)))
    AND substr(subject, 1, length(?4)) = ?4
ORDER BY id DESC
LIMIT ?5

-- name: happening_forget
-- Those that are too old, and those that are too many.
DELETE FROM pitboss_happenings
WHERE id IN (
    SELECT id FROM pitboss_happenings
    WHERE id < max(?1, coalesce((
        SELECT id || ' ' FROM pitboss_happenings WHERE id >= '' ORDER BY id DESC LIMIT 1 OFFSET ?2
    ), ''))
    ORDER BY id
    LIMIT ?3
)

-- name: audit_forget
DELETE FROM pitboss_audit WHERE id IN (SELECT id FROM pitboss_audit WHERE id < ?1 ORDER BY id LIMIT ?2)
