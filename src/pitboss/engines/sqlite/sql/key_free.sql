DELETE FROM pitboss_uniques
WHERE
    until IS NULL
    AND (task, key) IN (
        VALUES (?, ?)
    )
