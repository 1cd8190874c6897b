-- Uses of members that count from other moments.
UPDATE {schema}.uses AS u SET at = new.at
FROM unnest(%(members)s::bigint[], %(numbers)s::bigint[], %(ats)s::bigint[]) AS new (member, number, at)
WHERE u.resource = new.member AND u.number = new.number
