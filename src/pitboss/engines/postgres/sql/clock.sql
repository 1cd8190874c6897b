-- name: clock_get
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, shift FROM {schema}.clock

-- name: clock_shift
-- Nothing if another client was faster.
UPDATE {schema}.clock SET shift = %(shift)s::bigint WHERE shift = %(seen)s::bigint RETURNING shift

-- name: clock_lock_tasks
-- A put that began before the shift must be seen by `clock_rebase`.
LOCK TABLE {schema}.tasks IN SHARE ROW EXCLUSIVE MODE

-- name: clock_rebase
-- As model.lifecycle.rebased.
UPDATE {schema}.tasks
SET
    run_at = CASE WHEN by_wall & 1 > 0 AND claim = 0 THEN run_at - %(step)s::bigint ELSE run_at END,
    expires_at = CASE WHEN by_wall & 2 > 0 THEN expires_at - %(step)s::bigint ELSE expires_at END
WHERE by_wall IS NOT NULL AND state IN ('held', 'scheduled', 'pending', 'running')
