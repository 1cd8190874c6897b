SELECT name FROM {schema}.queues
WHERE name = ANY (%(queues)s::text[]) AND capacity IS NOT NULL
ORDER BY name FOR UPDATE
