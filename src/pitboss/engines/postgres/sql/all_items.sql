-- Items of a batch, those that are finished first.
SELECT id FROM {schema}.tasks WHERE batch = %(batch)s::text
ORDER BY state NOT IN ('completed', 'failed', 'cancelled'), id LIMIT %(limit)s::bigint FOR UPDATE
