SELECT now, p.name, p.rules
FROM (SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) AS clock
LEFT JOIN {schema}.pools AS p ON p.name = ANY (%(names)s::text[])
