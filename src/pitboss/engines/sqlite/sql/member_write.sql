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
