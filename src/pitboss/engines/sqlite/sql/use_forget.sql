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
