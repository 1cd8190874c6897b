-- The batches of a lane that have not ended.
SELECT rank, id, status FROM {schema}.batches
WHERE lane = %(lane)s::text AND status NOT IN ('cancelled', 'done', 'done_with_errors')
