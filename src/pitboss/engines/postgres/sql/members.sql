-- name: member_columns
number, pool, name, stage, rank, last_used_at, available_at, in_use, enabled, labels, settings, record

-- name: member_list
SELECT {member_columns}
FROM {schema}.resources
WHERE pool = %(pool)s::text AND (%(names)s::text[] IS NULL OR name = ANY (%(names)s::text[])) ORDER BY name

-- name: member_add
INSERT INTO {schema}.resources (
    pool, name, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled, labels, settings
)
SELECT %(pool)s::text, name, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled,
    labels::text[], settings
FROM unnest(
    %(names)s::text[], %(members)s::bigint[], %(ranks)s::bigint[], %(last_uses)s::bigint[], %(available)s::bigint[],
    %(blacklisted)s::bigint[], %(in_use)s::bigint[], %(stages)s::text[], %(records)s::text[], %(enabled)s::boolean[],
    %(labels)s::text[], %(settings)s::text[]
) AS new (
    name, member, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled, labels, settings
)

-- name: member_rewrite
WITH found AS MATERIALIZED (
    SELECT r.place, new.* FROM unnest(
        %(members)s::bigint[], %(ranks)s::bigint[], %(last_uses)s::bigint[], %(available)s::bigint[],
        %(blacklisted)s::bigint[], %(in_use)s::bigint[], %(stages)s::text[], %(records)s::text[],
        %(enabled)s::boolean[], %(labels)s::text[], %(settings)s::text[]
    ) AS new (
        member, rank, last_used_at, available_at, blacklisted_until, in_use, stage, record, enabled, labels, settings
    ), LATERAL (
        SELECT ctid AS place FROM {schema}.resources WHERE number = new.member
    ) AS r
)
UPDATE {schema}.resources AS r SET rank = f.rank, last_used_at = f.last_used_at, available_at = f.available_at,
    blacklisted_until = f.blacklisted_until, in_use = f.in_use, stage = f.stage, record = f.record,
    enabled = f.enabled, labels = f.labels::text[], settings = f.settings
FROM found AS f WHERE r.ctid = f.place

-- name: member_remove
WITH forgotten AS (
    DELETE FROM {schema}.uses WHERE resource = ANY (%(members)s::bigint[])
)
DELETE FROM {schema}.resources WHERE number = ANY (%(members)s::bigint[])

-- name: member_lock
-- In the order of their numbers, as all writers lock them.
SELECT {member_columns}
FROM {schema}.resources WHERE number = ANY (ARRAY(
    SELECT r.number FROM unnest(%(pools)s::text[], %(names)s::text[]) AS wanted (pool, name), LATERAL (
        SELECT number FROM {schema}.resources WHERE pool = wanted.pool AND name = wanted.name
    ) AS r
)) ORDER BY number FOR UPDATE

-- name: member_lock_free
-- Only those that no other transaction has locked, in the order of their numbers.
SELECT {member_columns}
FROM {schema}.resources WHERE number = ANY (ARRAY(
    SELECT r.number FROM unnest(%(pools)s::text[], %(names)s::text[]) AS wanted (pool, name), LATERAL (
        SELECT number FROM {schema}.resources WHERE pool = wanted.pool AND name = wanted.name
    ) AS r
)) ORDER BY number FOR UPDATE SKIP LOCKED

-- name: member_lock_all
SELECT {member_columns}
FROM {schema}.resources WHERE pool = %(pool)s::text ORDER BY number FOR UPDATE

-- name: member_lock_ready
-- Lock ready members in the order in which they are given: `most` with these labels, and these by name. Members that
-- another transaction has locked are skipped.
SELECT {member_columns}
FROM unnest(%(pools)s::text[], %(labels)s::text[], %(limits)s::bigint[]) AS wanted (of, marks, most), LATERAL (
    SELECT * FROM {schema}.resources WHERE pool = of AND stage = 'ready' AND labels @> marks::text[]
    ORDER BY rank, last_used_at, name LIMIT most FOR UPDATE SKIP LOCKED
) AS r
UNION ALL
SELECT {member_columns}
FROM unnest(%(named_pools)s::text[], %(names)s::text[]) AS wanted (of, known), LATERAL (
    SELECT * FROM {schema}.resources WHERE pool = of AND name = known AND stage = 'ready' FOR UPDATE SKIP LOCKED
) AS r

-- name: member_last_ready
-- The last of the ready members of each pool by rank, which is not locked.
SELECT {member_columns}
FROM unnest(%(pools)s::text[]) AS wanted (of), LATERAL (
    SELECT * FROM {schema}.resources WHERE pool = of AND stage = 'ready'
    ORDER BY rank DESC, last_used_at DESC, name DESC LIMIT 1
) AS r

-- name: member_wake
-- Members that may be used again become ready.
WITH due AS MATERIALIZED (
    SELECT r.place FROM unnest(%(pools)s::text[]) AS p (name), LATERAL (
        SELECT ctid AS place FROM {schema}.resources
        WHERE pool = p.name AND stage = 'away'
            AND available_at <= {now}
        ORDER BY available_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS r
)
UPDATE {schema}.resources AS r SET stage = 'ready' FROM due WHERE r.ctid = due.place

-- name: member_serving
-- How many members in service (`model.leasing`) have these labels, counted up to `most`: a task cannot have tried more.
SELECT w.pool, w.labels, (
    SELECT count(*) FROM (
        SELECT FROM {schema}.resources AS r
        WHERE r.pool = w.pool AND enabled AND r.labels @> w.labels::text[] AND blacklisted_until <= %(now)s::bigint
            AND coalesce((record::json ->> 'cooldown_until')::bigint, 0) <= %(now)s::bigint
        LIMIT %(most)s::bigint
    ) AS few
) FROM unnest(%(pools)s::text[], %(labels)s::text[]) AS w (pool, labels)

-- name: member_blacklisted
SELECT count(*) FILTER (WHERE enabled), count(*) FILTER (WHERE enabled AND blacklisted_until > %(now)s::bigint
    AND name <> ALL (%(besides)s::text[]))
FROM {schema}.resources WHERE pool = %(pool)s::text

-- name: member_compared
SELECT coalesce((record::json ->> 'compared')::bigint, 0)
FROM {schema}.resources WHERE pool = %(pool)s::text AND enabled AND name <> ALL (%(besides)s::text[])

-- name: member_lowest_turn
SELECT coalesce(min(coalesce((record::json ->> 'turn')::bigint, 0)), 0)
FROM {schema}.resources WHERE pool = %(pool)s::text

-- name: departed_put
INSERT INTO {schema}.departed (pool, name, until, kept)
SELECT %(pool)s::text, * FROM unnest(%(names)s::text[], %(untils)s::bigint[], %(kept)s::text[])
ON CONFLICT (pool, name) DO UPDATE SET until = excluded.until, kept = excluded.kept

-- name: departed_take
-- What is remembered of these names, and is forgotten from now on.
DELETE FROM {schema}.departed WHERE pool = %(pool)s::text AND name = ANY (%(names)s::text[])
RETURNING name, CASE WHEN until > %(now)s::bigint THEN kept END

-- name: departed_forget
DELETE FROM {schema}.departed WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.departed WHERE until <= {now}
    ORDER BY until LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
))

-- name: binding_lock
-- Lock the keys that no other transaction is binding. It does not wait, so the order does not matter.
SELECT pool, key FROM unnest(%(pools)s::text[], %(keys)s::text[]) AS w (pool, key)
WHERE pg_try_advisory_xact_lock(hashtextextended(%(channel)s::text || ' ' || pool || ' ' || key, 0))

-- name: binding_get
SELECT name FROM {schema}.bindings WHERE pool = %(pool)s::text AND key = %(key)s::text AND until > {now}

-- name: binding_members
-- The members that keys are bound to.
SELECT w.key, r.number, r.pool, r.name, r.stage, r.rank, r.last_used_at, r.available_at, r.in_use, r.enabled, r.labels,
    r.settings, r.record
FROM unnest(%(pools)s::text[], %(keys)s::text[]) AS w (pool, key), LATERAL (
    SELECT name FROM {schema}.bindings AS b WHERE b.pool = w.pool AND b.key = w.key
        AND until > {now}
) AS b, LATERAL (
    SELECT * FROM {schema}.resources AS r WHERE r.pool = w.pool AND r.name = b.name
) AS r

-- name: binding_set
INSERT INTO {schema}.bindings (pool, key, name, until)
SELECT * FROM unnest(%(pools)s::text[], %(keys)s::text[], %(names)s::text[], %(untils)s::bigint[])
ON CONFLICT (pool, key) DO UPDATE SET name = excluded.name, until = excluded.until

-- name: binding_forget
-- Bindings and strikes that are over.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), struck AS (
    DELETE FROM {schema}.strikes WHERE at <= (SELECT now FROM clock) - %(kept)s::bigint
)
DELETE FROM {schema}.bindings WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.bindings WHERE until <= (SELECT now FROM clock)
    ORDER BY until LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
))

-- name: strike_add
INSERT INTO {schema}.strikes (pool, destination, name, at)
SELECT pool, destination, name, %(now)s::bigint
FROM unnest(%(pools)s::text[], %(destinations)s::text[], %(names)s::text[]) AS new (pool, destination, name)
ON CONFLICT (pool, destination, name) DO UPDATE SET at = excluded.at

-- name: strike_list
SELECT w.pool, w.destination, s.name, s.at
FROM unnest(%(pools)s::text[], %(destinations)s::text[]) AS w (pool, destination), LATERAL (
    SELECT name, at FROM {schema}.strikes WHERE pool = w.pool AND destination = w.destination
) AS s

-- name: strike_forget
-- These destinations have answered.
DELETE FROM {schema}.strikes WHERE ctid = ANY (ARRAY(
    SELECT s.place FROM unnest(%(pools)s::text[], %(destinations)s::text[]) AS w (pool, destination), LATERAL (
        SELECT ctid AS place, name FROM {schema}.strikes WHERE pool = w.pool AND destination = w.destination
    ) AS s ORDER BY w.pool, w.destination, s.name
))
