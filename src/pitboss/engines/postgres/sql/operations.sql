-- name: operation_add
INSERT INTO {schema}.operations (id, status, body) VALUES (%(id)s::text, 'running', %(body)s::text)
ON CONFLICT (id) DO NOTHING

-- name: operation_get
SELECT body FROM {schema}.operations WHERE id = %(id)s::text

-- name: operation_lock
SELECT body FROM {schema}.operations WHERE id = %(id)s::text FOR UPDATE

-- name: operation_write
UPDATE {schema}.operations SET status = %(status)s::text, ended_at = %(ended_at)s::bigint, body = %(body)s::text
WHERE id = %(id)s::text

-- name: operation_list_named
SELECT body FROM {schema}.operations WHERE id = ANY (%(ids)s::text[]) ORDER BY id DESC

-- name: operation_list
SELECT body FROM {schema}.operations
WHERE cardinality(%(statuses)s::text[]) = 0 OR status = ANY (%(statuses)s::text[])
ORDER BY id DESC LIMIT %(limit)s::bigint

-- name: operation_walk
-- The id at this place among those that it reads; no row if there are fewer.
SELECT id FROM ({ids}) AS walked (id) ORDER BY id OFFSET %s LIMIT 1

-- name: operation_found
SELECT id FROM {schema}.tasks WHERE {range} AND {counts} AND ({condition}) ORDER BY id LIMIT %s

-- name: operation_failed
-- How many of its tasks have failed again, counted up to a number. The condition is that of the index.
SELECT count(*) FROM (
    SELECT FROM {schema}.tasks
    WHERE operation = %(id)s::text AND operation IS NOT NULL AND attempts > 0
        AND state <> 'completed' AND state <> 'cancelled'
    LIMIT %(most)s::bigint
) AS failed

-- name: operation_stay
-- Those of these tasks that are still there.
SELECT id FROM {schema}.tasks WHERE id = ANY (%(ids)s::uuid[]) ORDER BY id

-- name: operation_forget
WITH gone AS (
    DELETE FROM {schema}.operations WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.operations WHERE ended_at < %(before)s::bigint
        LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    )) RETURNING id
)
SELECT count(*) FROM gone
