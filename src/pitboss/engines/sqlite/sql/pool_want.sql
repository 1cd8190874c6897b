-- The first stage in which a member stands, of those that say why none could be given, and the earliest moment of those
-- that are away. After a clock was set back, some that were ready are away again.
WITH stands (ready, away) AS (
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
    FROM stands
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
