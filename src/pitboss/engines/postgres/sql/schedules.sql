-- name: schedule_list
SELECT body FROM {schema}.schedules WHERE name > %(after)s::text ORDER BY name LIMIT %(limit)s::bigint

-- name: schedule_get
SELECT body FROM {schema}.schedules WHERE name = ANY (%(names)s::text[]) AND name > %(after)s::text
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
    SELECT body FROM {schema}.schedules WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE
)
SELECT now, body FROM clock, found

-- name: schedule_lock_declared
-- Those that an app declares, and those with these names.
SELECT body FROM {schema}.schedules WHERE app = %(app)s::text OR name = ANY (%(names)s::text[])
ORDER BY name FOR UPDATE

-- name: schedule_write
INSERT INTO {schema}.schedules (name, next_at, version, paused, app, body)
SELECT * FROM unnest(
    %(names)s::text[], %(next_ats)s::bigint[], %(versions)s::bigint[], %(paused)s::boolean[], %(apps)s::text[],
    %(bodies)s::text[]
)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at, version = excluded.version, paused = excluded.paused,
    app = excluded.app, body = excluded.body

-- name: schedule_remove
DELETE FROM {schema}.schedules WHERE name = ANY (%(names)s::text[])
