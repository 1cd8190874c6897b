-- The queued batches of a lane that have a slot now, in their order.
SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete
FROM pitboss_batches
WHERE status = 'queued' AND lane = ?1
ORDER BY rank, id
LIMIT max(
    0,
    (SELECT max_running FROM pitboss_lanes WHERE name = ?1)
    - (SELECT count(*) FROM pitboss_batches WHERE lane = ?1 AND status IN ('running', 'pausing', 'cancelling'))
)
