-- A key taken for a task that turned out to exist already, with another key or none.
DELETE FROM {schema}.uniques AS held
USING unnest(%(keys)s::text[], %(tasks)s::uuid[]) AS wrong (key, task)
WHERE held.key = wrong.key AND held.task = wrong.task
    AND (SELECT unique_key FROM {schema}.tasks WHERE id = wrong.task) IS DISTINCT FROM wrong.key
