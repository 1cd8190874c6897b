-- The last hundred runs of a task are kept.
DELETE FROM {schema}.attempts AS a USING unnest(%(tasks)s::uuid[]) AS long (task)
WHERE a.task = long.task AND a.claim <= (
    SELECT claim FROM {schema}.attempts WHERE task = long.task ORDER BY claim DESC OFFSET 100 LIMIT 1
)
