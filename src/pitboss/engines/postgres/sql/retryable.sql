SELECT id, batch FROM {schema}.tasks
WHERE state IN ('failed', 'cancelled') AND ({condition})
ORDER BY id LIMIT %s
