-- name: pool_list
SELECT p.name, p.rules, p.declared, p.limited, (
    SELECT coalesce(json_object_agg(stage, n), json_build_object())::text FROM (
        SELECT CASE WHEN stage = 'away' AND available_at <= now THEN 'ready' ELSE stage END AS stage, count(*) AS n
        FROM {schema}.resources WHERE pool = p.name GROUP BY 1
    ) AS counted
), (
    SELECT min(available_at) FROM {schema}.resources WHERE pool = p.name AND stage = 'away' AND available_at > now
)
FROM {schema}.pools AS p,
    (SELECT {now} AS now) AS clock
ORDER BY p.name

-- name: pool_create
INSERT INTO {schema}.pools (name, rules) VALUES (%(name)s::text, %(rules)s::text) ON CONFLICT (name) DO NOTHING

-- name: pool_lock
SELECT name, rules, declared, limited FROM {schema}.pools WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE

-- name: pool_set_rules
UPDATE {schema}.pools SET rules = %(rules)s::text, declared = %(declared)s::text, limited = %(limited)s::text
WHERE name = %(name)s::text

-- name: pool_rules
SELECT now, p.name, p.rules
FROM (SELECT {now} AS now) AS clock
LEFT JOIN {schema}.pools AS p ON p.name = ANY (%(names)s::text[])

-- name: pool_shortage
-- Why no member could be given: the stage of the members, when the next one comes back, and whether ready ones with
-- these labels were not seen because another transaction had locked them.
SELECT w.pool, CASE
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'ready') THEN 'ready'
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'away') THEN 'away'
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'busy') THEN 'busy'
    WHEN EXISTS (SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool) THEN 'out'
END, (
    SELECT min(available_at) FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'away'
), EXISTS (
    SELECT FROM {schema}.resources AS r WHERE r.pool = w.pool AND stage = 'ready' AND r.labels @> w.labels::text[]
        AND r.number <> ALL (%(seen)s::bigint[])
)
FROM unnest(%(pools)s::text[], %(labels)s::text[]) AS w (pool, labels)
