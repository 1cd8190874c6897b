-- name: handler_lock
-- One registration at a time: a new handler gets the next number.
SELECT pg_advisory_xact_lock(hashtextextended(%(channel)s::text || ' handlers', 0))

-- name: handler_add
-- `HandlerInfo.registered` has the rule.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), bound AS MATERIALIZED (
    SELECT name, queue, resources FROM {schema}.handlers WHERE name = ANY (%(names)s::text[])
), new AS MATERIALIZED (
    SELECT * FROM unnest(
        %(names)s::text[], %(queues)s::text[], %(policies)s::text[], %(schemas)s::text[], %(pools)s::text[],
        %(remotes)s::boolean[], %(abouts)s::text[], %(routed)s::boolean[], %(places)s::bigint[]
    ) AS given (name, queue, policy, schema, resources, remote, about, routed, place)
), written AS (
    INSERT INTO {schema}.handlers AS h (
        name, queue, policy, schema, resources, remote, about, routed, number, created_at, updated_at
    )
    SELECT name, queue, policy, schema, resources, remote, about, routed, row_number() OVER (
        ORDER BY name IN (SELECT name FROM bound), place
    ) + (SELECT coalesce(max(number), 0) FROM {schema}.handlers), now, now
    FROM new, clock ORDER BY name
    ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, policy = excluded.policy, schema = excluded.schema,
        resources = excluded.resources, remote = excluded.remote, about = excluded.about, routed = excluded.routed,
        updated_at = excluded.updated_at
    WHERE (h.queue, h.policy, h.schema, h.resources, h.remote, h.about) IS DISTINCT FROM (
        excluded.queue, excluded.policy, excluded.schema, excluded.resources, excluded.remote, excluded.about)
)
SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END) FROM (
    SELECT string_agg(DISTINCT queue, ',') AS names FROM (
        SELECT queue, resources FROM new EXCEPT SELECT queue, resources FROM bound
        UNION ALL
        (SELECT queue, resources FROM bound EXCEPT SELECT queue, resources FROM new)
    ) AS changed WHERE resources IS NOT NULL
) AS rung WHERE names IS NOT NULL

-- name: handler_remove
WITH gone AS (
    DELETE FROM {schema}.handlers WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.handlers WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE
    )) RETURNING queue, resources
)
SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
FROM (SELECT string_agg(DISTINCT queue, ',') AS names FROM gone WHERE resources IS NOT NULL) AS rung
WHERE names IS NOT NULL

-- name: handler_columns
name, queue, policy, schema, resources, remote, about, number, created_at, updated_at

-- name: handler_list
SELECT {handler_columns} FROM {schema}.handlers ORDER BY name

-- name: handler_get
SELECT {handler_columns} FROM {schema}.handlers WHERE name = ANY (%(names)s::text[])

-- name: handler_routes
-- Handlers that have a fallback, or get dead letters.
SELECT name, about FROM {schema}.handlers WHERE routed
