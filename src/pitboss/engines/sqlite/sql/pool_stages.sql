-- As members stand at this moment: whose time has come is ready, and away again if the clock was set back.
SELECT
    pool,
    CASE WHEN stage IN ('ready', 'away') THEN CASE WHEN available_at > ?1 THEN 'away' ELSE 'ready' END ELSE stage END AS stands,
    count(*) AS n,
    min(CASE WHEN stage IN ('ready', 'away') AND available_at > ?1 THEN available_at END) AS next_at
FROM pitboss_resources
GROUP BY pool, stands
