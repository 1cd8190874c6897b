SELECT claim, attempt, outcome, started_at, ended_at, session, worker, error FROM pitboss_attempts WHERE task = ? ORDER BY claim
