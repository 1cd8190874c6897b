SELECT id FROM {schema}.tasks
WHERE id = ANY (%(ids)s::uuid[]) AND state IN ('held', 'pending', 'scheduled', 'running') AND NOT cancel_asked
ORDER BY id FOR UPDATE
