-- name: key_take
-- Take the keys of tasks that are retried if they are free. Written anew, so that a concurrent put sees the change.
INSERT INTO {schema}.uniques AS held (key, task)
SELECT key, task FROM unnest(%(keys)s::text[], %(tasks)s::uuid[]) AS new (key, task)
ON CONFLICT (key) DO UPDATE SET task = excluded.task, until = NULL
WHERE held.until <= {now}
    OR (held.until IS NULL AND (
        held.task = excluded.task OR (
            held.ctid = (SELECT seen.ctid FROM {schema}.uniques AS seen WHERE seen.key = held.key)
            AND (SELECT state FROM {schema}.tasks WHERE id = held.task) IN ('completed', 'failed', 'cancelled')
        )
    ))
RETURNING task

-- name: key_free
-- Free keys that were taken for a task that exists already, with another key or none.
DELETE FROM {schema}.uniques AS held
USING unnest(%(keys)s::text[], %(tasks)s::uuid[]) AS wrong (key, task)
WHERE held.key = wrong.key AND held.task = wrong.task
    AND (SELECT unique_key FROM {schema}.tasks WHERE id = wrong.task) IS DISTINCT FROM wrong.key

-- name: key_holder
SELECT key, task FROM {schema}.uniques WHERE key = ANY (%(keys)s::text[])
