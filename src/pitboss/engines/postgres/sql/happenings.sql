-- name: happening_add
INSERT INTO {schema}.happenings (id, at, kind, severity, subject, text, host, manager, details, count)
SELECT * FROM unnest(
    %(ids)s::text[], %(ats)s::bigint[], %(kinds)s::text[], %(severities)s::text[], %(subjects)s::text[],
    %(texts)s::text[], %(hosts)s::text[], %(managers)s::bigint[], %(details)s::text[], %(counts)s::bigint[]
)
ON CONFLICT (id) DO NOTHING

-- name: happening_list
SELECT id, at, kind, severity, subject, text, host, manager, details, count
FROM {schema}.happenings
WHERE id >= %(first)s::text AND id < %(last)s::text
    AND (cardinality(%(kinds)s::text[]) = 0 OR kind = ANY (%(kinds)s::text[]))
    AND starts_with(subject, %(subject)s::text)
ORDER BY id DESC
LIMIT %(limit)s::bigint

-- name: happening_forget
-- Those that are too old, and those that are too many.
WITH gone AS (
    DELETE FROM {schema}.happenings WHERE id = ANY (ARRAY(
        SELECT id FROM {schema}.happenings
        WHERE id < greatest(%(first)s::text COLLATE "C", coalesce((
            SELECT id || ' ' FROM {schema}.happenings ORDER BY id DESC LIMIT 1 OFFSET %(keep)s::bigint
        ), ''))
        ORDER BY id LIMIT %(limit)s::bigint
    )) RETURNING id
)
SELECT count(*) FROM gone

-- name: audit_forget
WITH gone AS (
    DELETE FROM {schema}.audit WHERE id = ANY (ARRAY(
        SELECT id FROM {schema}.audit WHERE id < %(first)s::text ORDER BY id LIMIT %(limit)s::bigint
    )) RETURNING id
)
SELECT count(*) FROM gone
