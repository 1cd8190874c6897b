SELECT id, batch FROM {schema}.tasks
WHERE (state = 'pending' OR state = 'scheduled' OR state = 'held' OR state = 'running')
    AND NOT cancel_asked AND ({condition})
ORDER BY id LIMIT %s
