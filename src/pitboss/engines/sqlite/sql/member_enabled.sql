-- At most so many as anybody asks about: `limit`, the last value.
SELECT count(*)
FROM (
    SELECT 1
    FROM pitboss_resources
    WHERE
        pool = ?1
        AND enabled = 1
        AND NOT EXISTS (SELECT 1 FROM json_each(?2) AS wanted WHERE instr(labels, wanted.value) = 0)
    LIMIT ?3
)
