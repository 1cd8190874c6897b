-- name: use_at
SELECT wanted.member, wanted.use, (
    SELECT at FROM {schema}.uses WHERE resource = wanted.member AND number = wanted.use
) FROM unnest(%(members)s::bigint[], %(numbers)s::bigint[]) AS wanted (member, use)

-- name: use_list
SELECT u.resource, u.number, u.at FROM unnest(%(members)s::bigint[]) AS m (number), LATERAL (
    SELECT resource, number, at FROM {schema}.uses WHERE resource = m.number
) AS u

-- name: use_restore
INSERT INTO {schema}.uses (resource, number, at)
SELECT r.number, old.number, old.at
FROM unnest(%(names)s::text[], %(numbers)s::bigint[], %(ats)s::bigint[]) AS old (name, number, at), LATERAL (
    SELECT number FROM {schema}.resources WHERE pool = %(pool)s::text AND name = old.name
) AS r

-- name: use_move
-- Uses that count from another moment.
UPDATE {schema}.uses AS u SET at = new.at
FROM unnest(%(members)s::bigint[], %(numbers)s::bigint[], %(ats)s::bigint[]) AS new (member, number, at)
WHERE u.resource = new.member AND u.number = new.number
