INSERT INTO pitboss_batches (id, name, lane, status, rank, made_by, created_at, data, on_complete)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
