-- The first stage in which a member stands, of those that say why none could be given; each look ends at the first hit.
-- After a clock was set back, some that were ready are away again.
WITH away (until) AS (
    SELECT min(available_at) FROM pitboss_resources WHERE pool = ?1 AND stage = 'away'
)

SELECT
    CASE
        WHEN EXISTS (SELECT 1 FROM pitboss_resources WHERE pool = ?1 AND stage = 'ready' AND available_at <= ?2) THEN 'ready'
        WHEN until IS NOT NULL THEN 'away'
        WHEN EXISTS (SELECT 1 FROM pitboss_resources WHERE pool = ?1 AND stage = 'ready') THEN 'away'
        WHEN EXISTS (SELECT 1 FROM pitboss_resources WHERE pool = ?1 AND stage = 'busy') THEN 'busy'
        WHEN EXISTS (SELECT 1 FROM pitboss_resources WHERE pool = ?1) THEN 'out'
    END AS stage,
    until
FROM away
