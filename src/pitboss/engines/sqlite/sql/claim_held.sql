SELECT pitboss_tasks.resource, pitboss_tasks.member
FROM pitboss_tasks
JOIN pitboss_sessions ON pitboss_sessions.number = pitboss_tasks.session
WHERE
    pitboss_tasks.id = ?1
    AND pitboss_tasks.state = 'running'
    AND pitboss_tasks.session = ?2
    AND pitboss_tasks.claim = ?3
    AND pitboss_sessions.ended = 0
    AND pitboss_sessions.expires_at > ?4
