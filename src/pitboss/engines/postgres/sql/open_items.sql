-- Unfinished items of a batch that nobody has asked to cancel yet, oldest first.
SELECT id FROM (
    SELECT id, cancel_asked FROM {schema}.tasks WHERE batch = %(batch)s::text AND state = 'held'
    UNION ALL
    SELECT id, cancel_asked FROM {schema}.tasks
    WHERE batch = %(batch)s::text AND state IN ('pending', 'scheduled', 'running')
) AS items WHERE NOT cancel_asked ORDER BY id LIMIT %(limit)s::bigint
