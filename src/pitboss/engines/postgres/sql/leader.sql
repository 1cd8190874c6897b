-- Who leads (nothing but NULL if nobody), and whether the session that asks is alive, both at the same moment.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)
SELECT l.term, s.number, s.host, EXISTS (
        SELECT FROM {schema}.sessions AS me WHERE me.number = %(session)s::bigint AND NOT me.ended AND me.expires_at > now
    )
FROM clock CROSS JOIN {schema}.leader AS l
LEFT JOIN {schema}.sessions AS s ON s.number = l.session AND NOT s.ended AND s.expires_at > now
WHERE l.one
