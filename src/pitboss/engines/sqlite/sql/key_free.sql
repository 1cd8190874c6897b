DELETE FROM uniques
WHERE
    until IS NULL
    AND (task, key) IN (
        VALUES (?, ?)
    )
