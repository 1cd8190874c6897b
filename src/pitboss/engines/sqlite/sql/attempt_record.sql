INSERT OR REPLACE INTO pitboss_attempts (task, claim, attempt, outcome, started_at, ended_at, session, worker, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
