-- name: pool_put
INSERT INTO pitboss_pools (name, rules, declared, limited)
VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET rules = excluded.rules, declared = excluded.declared, limited = excluded.limited

-- name: pool_get
SELECT declared, limited FROM pitboss_pools WHERE name = ?

-- name: pool_rules
SELECT rules FROM pitboss_pools WHERE name = ?

-- name: pool_list
SELECT name, rules, declared, limited FROM pitboss_pools ORDER BY name

-- name: pool_stages
-- The stages at this moment: an away member whose time has come counts as ready, and the other way round if the clock was set back.
SELECT
    pool,
    CASE WHEN stage IN ('ready', 'away') THEN CASE WHEN available_at > ?1 THEN 'away' ELSE 'ready' END ELSE stage END AS stage_now,
    count(*) AS n,
    min(CASE WHEN stage IN ('ready', 'away') AND available_at > ?1 THEN available_at END) AS next_at
FROM pitboss_resources
GROUP BY pool, stage_now

-- name: pool_queues
-- SQLite takes `resources` from the row of the minimum.
SELECT queue
FROM (SELECT queue, resources, min(name) AS handler FROM pitboss_handlers WHERE resources IS NOT NULL GROUP BY queue)
WHERE resources = ?

-- name: pool_shortage
-- The first stage, of those that explain a shortage, that a member is in, and the earliest moment of the away ones. After
-- a clock was set back, some ready members count as away again.
WITH found (ready, away) AS (
    SELECT
        EXISTS (SELECT 1 FROM pitboss_resources WHERE pool = ?1 AND stage = 'ready' AND available_at <= ?2),
        (SELECT min(available_at) FROM pitboss_resources WHERE pool = ?1 AND stage = 'away')
),

seen (ready, until) AS (
    SELECT
        ready,
        (
            SELECT min(moment)
            FROM (
                SELECT away AS moment
                UNION ALL
                SELECT min(available_at)
                FROM pitboss_resources
                WHERE pool = ?1 AND stage = 'ready' AND available_at > ?2
            )
        )
    FROM found
)

SELECT
    CASE
        WHEN ready THEN 'ready'
        WHEN until IS NOT NULL THEN 'away'
        WHEN EXISTS (SELECT 1 FROM pitboss_resources WHERE pool = ?1 AND stage = 'busy') THEN 'busy'
        WHEN EXISTS (SELECT 1 FROM pitboss_resources WHERE pool = ?1) THEN 'out'
    END AS stage,
    until
FROM seen
