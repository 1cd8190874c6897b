-- name: schedule_list
SELECT body FROM {schema}.schedules WHERE NOT withdrawn AND name > %(after)s::text ORDER BY name LIMIT %(limit)s::bigint

-- name: schedule_get
SELECT body FROM {schema}.schedules WHERE name = ANY (%(names)s::text[]) AND name > %(after)s::text AND NOT withdrawn
ORDER BY name LIMIT %(limit)s::bigint

-- name: schedule_due
-- Schedules whose tick has come, one more than asked for, and the next tick after now.
WITH clock AS MATERIALIZED (
    SELECT {wall_columns} AS wall
)
SELECT due.* FROM clock, LATERAL (
    SELECT next_at, body FROM {schema}.schedules
    WHERE NOT paused AND next_at IS NOT NULL AND next_at <= wall ORDER BY next_at, name LIMIT %(limit)s::bigint + 1
) AS due
UNION ALL
SELECT soonest.* FROM clock, LATERAL (
    SELECT next_at, NULL FROM {schema}.schedules
    WHERE NOT paused AND next_at IS NOT NULL AND next_at > wall ORDER BY next_at, name LIMIT 1
) AS soonest

-- name: schedule_lock
-- The moment comes with each.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), found AS MATERIALIZED (
    SELECT t.* FROM unnest(%(names)s::text[]) AS wanted (name), LATERAL (
        SELECT body FROM {schema}.schedules WHERE name = wanted.name FOR UPDATE
    ) AS t
)
SELECT now, found.* FROM clock, found

-- name: schedule_lock_versions
-- As above, without the bodies.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), found AS MATERIALIZED (
    SELECT t.* FROM unnest(%(names)s::text[]) AS wanted (name), LATERAL (
        SELECT ctid AS place, name, version, paused FROM {schema}.schedules WHERE name = wanted.name FOR UPDATE
    ) AS t
)
SELECT now, found.* FROM clock, found

-- name: schedule_lock_declared
-- Those that an app declares, and those with these names.
SELECT body FROM {schema}.schedules WHERE app = %(app)s::text OR name = ANY (%(names)s::text[])
ORDER BY name FOR UPDATE

-- name: schedule_write
INSERT INTO {schema}.schedules (name, next_at, version, paused, app, withdrawn, body)
SELECT * FROM unnest(
    %(names)s::text[], %(next_ats)s::bigint[], %(versions)s::bigint[], %(paused)s::boolean[], %(apps)s::text[],
    %(withdrawn)s::boolean[], %(bodies)s::text[]
)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at, version = excluded.version, paused = excluded.paused,
    app = excluded.app, withdrawn = excluded.withdrawn, body = excluded.body

-- name: schedule_advance
-- Write locked schedules that have fired.
UPDATE {schema}.schedules AS s SET next_at = n.next_at, version = n.version, body = n.body
FROM unnest(%(places)s::tid[], %(next_ats)s::bigint[], %(versions)s::bigint[], %(bodies)s::text[])
    AS n (place, next_at, version, body)
WHERE s.ctid = n.place

-- name: schedule_remove
DELETE FROM {schema}.schedules WHERE name = ANY (%(names)s::text[])
