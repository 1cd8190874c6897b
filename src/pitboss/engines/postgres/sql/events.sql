-- name: event_add
-- Store events; answers those that were stored before, or are by another call.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::text[], %(names)s::text[], %(datas)s::text[], %(keys)s::text[], %(bys)s::text[], %(handlers)s::text[]
    ) AS new (id, name, data, key, by, handlers)
), made AS (
    INSERT INTO {schema}.events (id, published_at, name, data, key, by, handlers)
    SELECT id, now, name, data, key, by, handlers::text[] FROM given, clock
    ON CONFLICT (id) DO NOTHING RETURNING id
)
SELECT id FROM given EXCEPT SELECT id FROM made

-- name: event_columns
id, name, data, key, by, published_at, handlers

-- name: event_get
SELECT {event_columns} FROM unnest(%(ids)s::text[]) AS wanted (event), LATERAL (
    SELECT * FROM {schema}.events WHERE id = wanted.event
) AS e

-- name: event_list
SELECT {event_columns} FROM {schema}.events WHERE id < coalesce(%(before)s::text, '~')
ORDER BY id DESC LIMIT %(limit)s::bigint

-- name: event_list_named
SELECT {event_columns} FROM {schema}.events WHERE name = %(name)s::text AND id < coalesce(%(before)s::text, '~')
ORDER BY id DESC LIMIT %(limit)s::bigint

-- name: event_prune
WITH gone AS (
    DELETE FROM {schema}.events WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.events WHERE published_at < %(before)s::bigint
        ORDER BY published_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    )) RETURNING id
)
SELECT count(*) FROM gone
