UPDATE pitboss_leader
SET term = term + 1, session = ?1
RETURNING term, session, (SELECT host FROM pitboss_sessions WHERE number = ?1)
