-- Uses of a member that count from other moments.
UPDATE {schema}.uses AS u SET at = new.at
FROM unnest(%(numbers)s::bigint[], %(ats)s::bigint[]) AS new (number, at)
WHERE u.resource = %(resource)s::bigint AND u.number = new.number
