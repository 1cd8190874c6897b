SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete
FROM pitboss_batches
WHERE finished_at IS NOT NULL AND +status IN (SELECT value FROM json_each(?))
ORDER BY finished_at DESC, id DESC
LIMIT ?
