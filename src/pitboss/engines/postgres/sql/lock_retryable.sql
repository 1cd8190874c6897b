SELECT id, unique_key FROM {schema}.tasks
WHERE state IN ('failed', 'cancelled') AND ({condition}) AND id = ANY (%s::uuid[])
ORDER BY id FOR UPDATE
