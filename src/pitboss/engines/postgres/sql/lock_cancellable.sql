SELECT id FROM {schema}.tasks
WHERE (state = 'pending' OR state = 'scheduled' OR state = 'held' OR state = 'running')
    AND NOT cancel_asked AND ({condition}) AND id = ANY (%s::uuid[])
ORDER BY id FOR UPDATE
