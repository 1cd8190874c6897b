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
