INSERT OR REPLACE INTO attempts (task, claim, attempt, outcome, started_at, ended_at, session, worker, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
