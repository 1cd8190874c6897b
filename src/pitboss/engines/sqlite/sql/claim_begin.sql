-- Whether batches run, if the session is alive.
SELECT EXISTS (SELECT 1 FROM pitboss_batches WHERE status = 'running')
FROM pitboss_sessions
WHERE number = ? AND ended = 0 AND expires_at > ?
