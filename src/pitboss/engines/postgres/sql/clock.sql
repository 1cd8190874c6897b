-- name: clock_get
SELECT
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, shift, confirmed_since, confirmed_at,
    current_setting('transaction_read_only') = 'off'
FROM {schema}.clock

-- name: clock_confirm
-- The stretches of two clients are one if they overlap. A client that finds the row locked leaves it to others.
UPDATE {schema}.clock
SET
    confirmed_since = CASE WHEN %(since)s::bigint > confirmed_at THEN %(since)s::bigint
        ELSE least(confirmed_since, %(since)s::bigint) END,
    confirmed_at = %(moment)s::bigint
WHERE one IN (SELECT one FROM {schema}.clock WHERE shift = %(shift)s::bigint FOR UPDATE SKIP LOCKED)

-- name: clock_shift
-- Nothing if another client was faster.
UPDATE {schema}.clock
SET shift = %(shift)s::bigint, confirmed_since = %(moment)s::bigint, confirmed_at = %(moment)s::bigint
WHERE shift = %(seen)s::bigint
RETURNING shift

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
