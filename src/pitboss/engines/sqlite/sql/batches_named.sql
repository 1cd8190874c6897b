SELECT id, name, lane, status, rank, made_by, created_at, started_at, finished_at, reason, data, on_complete
FROM pitboss_batches
WHERE id IN (SELECT value FROM json_each(?))
