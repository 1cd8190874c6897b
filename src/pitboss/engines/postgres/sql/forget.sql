WITH gone AS (
    DELETE FROM {schema}.handlers WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.handlers WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE
    )) RETURNING queue, resources
)
SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
FROM (SELECT string_agg(DISTINCT queue, ',') AS names FROM gone WHERE resources IS NOT NULL) AS rung
WHERE names IS NOT NULL
