SELECT
    pool,
    CASE WHEN stage = 'away' AND available_at <= ?1 THEN 'ready' ELSE stage END AS stands,
    count(*) AS n,
    min(CASE WHEN stage = 'away' AND available_at > ?1 THEN available_at END) AS next_at
FROM pitboss_resources
GROUP BY pool, stands
