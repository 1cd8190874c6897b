SELECT id, unique_key FROM {schema}.tasks
WHERE batch = %(batch)s::text AND ((state = 'cancelled' AND %(cancelled)s::boolean) OR (state = 'failed' AND (
    %(error)s::text IS NULL OR fingerprint = %(error)s::text
    OR error::json ->> 'category' = %(error)s::text OR error::json ->> 'type' = %(error)s::text)))
ORDER BY id LIMIT %(limit)s::bigint FOR UPDATE
