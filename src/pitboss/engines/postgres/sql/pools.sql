SELECT p.name, p.rules, (
    SELECT coalesce(json_object_agg(stage, n), json_build_object())::text FROM (
        SELECT CASE WHEN stage = 'away' AND available_at <= now THEN 'ready' ELSE stage END AS stage, count(*) AS n
        FROM {schema}.resources WHERE pool = p.name GROUP BY 1
    ) AS counted
), (
    SELECT min(available_at) FROM {schema}.resources WHERE pool = p.name AND stage = 'away' AND available_at > now
)
FROM {schema}.pools AS p,
    (SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) AS clock
ORDER BY p.name
