-- Keys for tasks that live again: taken if they are free, written anew so that a concurrent put sees the change.
INSERT INTO {schema}.uniques AS held (key, task)
SELECT key, task FROM unnest(%(keys)s::text[], %(tasks)s::uuid[]) AS new (key, task)
ON CONFLICT (key) DO UPDATE SET task = excluded.task, until = NULL
WHERE held.until <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    OR (held.until IS NULL AND (
        held.task = excluded.task OR (
            held.ctid = (SELECT seen.ctid FROM {schema}.uniques AS seen WHERE seen.key = held.key)
            AND (SELECT state FROM {schema}.tasks WHERE id = held.task) IN ('completed', 'failed', 'cancelled')
        )
    ))
RETURNING task
