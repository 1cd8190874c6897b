-- name: clock_get
SELECT boot_id, offset, ahead, latest FROM pitboss_clock

-- name: clock_ahead
SELECT ahead FROM pitboss_clock

-- name: clock_begin
INSERT INTO pitboss_clock (one, boot_id, offset, ahead, latest) VALUES (1, ?1, ?2, ?3, ?4)
ON CONFLICT (one) DO UPDATE SET boot_id = ?1, offset = ?2, ahead = ?3, latest = ?4

-- name: clock_keep
UPDATE pitboss_clock SET latest = max(latest, ?)

-- name: clock_set_ahead
UPDATE pitboss_clock SET ahead = ?

-- name: clock_rebase
-- As model.lifecycle.rebased.
UPDATE pitboss_tasks
SET
    run_at = CASE WHEN by_wall & 1 AND claim = 0 THEN run_at - ?1 ELSE run_at END,
    expires_at = CASE WHEN by_wall & 2 THEN expires_at - ?1 ELSE expires_at END
WHERE by_wall IS NOT NULL AND state IN ('held', 'scheduled', 'pending', 'running')
