SELECT name FROM {schema}.queues
WHERE NOT paused AND rate_counts IS NOT NULL AND (%(queues)s::text[] IS NULL OR name = ANY (%(queues)s::text[]))
ORDER BY name FOR UPDATE
