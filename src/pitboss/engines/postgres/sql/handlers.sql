-- name: handler_add
WITH bound AS MATERIALIZED (
    SELECT name, queue, resources FROM {schema}.handlers WHERE name = ANY (%(names)s::text[])
), new AS MATERIALIZED (
    SELECT * FROM unnest(
        %(names)s::text[], %(queues)s::text[], %(policies)s::text[], %(schemas)s::text[], %(pools)s::text[]
    ) AS given (name, queue, policy, schema, resources)
), written AS (
    INSERT INTO {schema}.handlers (name, queue, policy, schema, resources) SELECT * FROM new
    ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, policy = excluded.policy, schema = excluded.schema,
        resources = excluded.resources
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

-- name: handler_list
SELECT name, queue, policy, schema, resources FROM {schema}.handlers ORDER BY name
