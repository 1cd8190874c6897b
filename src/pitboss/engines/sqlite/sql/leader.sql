SELECT term, number, host
FROM pitboss_leader JOIN pitboss_sessions ON number = session
WHERE ended = 0 AND expires_at > ?
