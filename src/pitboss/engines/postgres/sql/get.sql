SELECT {columns} FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
    SELECT * FROM {schema}.tasks WHERE id = wanted.task
) AS t
