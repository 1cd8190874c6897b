-- name: api_key_columns
id, name, digest, roles, created_at, created_by, revoked_at

-- name: api_key_add
-- Nothing is added if a key that is not revoked has the name.
INSERT INTO {schema}.api_keys (id, name, digest, roles, created_at, created_by)
VALUES (%(id)s::text, %(name)s::text, %(digest)s::text, %(roles)s::text[], {now}, %(created_by)s::text)
ON CONFLICT DO NOTHING
RETURNING id

-- name: api_key_revoke
UPDATE {schema}.api_keys SET revoked_at = coalesce(revoked_at, {now}) WHERE id = %(id)s::text
RETURNING {api_key_columns}

-- name: api_key_list
SELECT {api_key_columns} FROM {schema}.api_keys ORDER BY created_at, id

-- name: audit_add
INSERT INTO {schema}.audit (id, at, who, act, target, details, source)
VALUES (%(id)s::text, {now}, %(who)s::text, %(act)s::text, %(target)s::text, %(details)s::text, %(source)s::text)
ON CONFLICT (id) DO NOTHING

-- name: audit_list
SELECT id, who, act, target, details, source, at FROM {schema}.audit
WHERE %(before)s::text IS NULL OR id < %(before)s::text ORDER BY id DESC LIMIT %(limit)s::bigint

-- name: request_remember
-- What is stored under the key; no row if another call has just stored it.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), stored AS (
    INSERT INTO {schema}.requests AS r (key, at, body, ids)
    SELECT %(key)s::text, now, %(body)s::text, %(ids)s::text[] FROM clock
    ON CONFLICT (key) DO UPDATE SET at = excluded.at, body = excluded.body, ids = excluded.ids
    WHERE r.at <= excluded.at - %(remembered)s::bigint
    RETURNING body, ids, at
)
SELECT body, ids, at FROM stored
UNION ALL
SELECT body, ids, r.at FROM clock, {schema}.requests AS r
WHERE key = %(key)s::text AND r.at > now - %(remembered)s::bigint AND NOT EXISTS (SELECT FROM stored)

-- name: request_forget
DELETE FROM {schema}.requests WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests WHERE at <= {now} - %(remembered)s::bigint
    ORDER BY at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
))
