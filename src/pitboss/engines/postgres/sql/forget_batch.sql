WITH figures AS (DELETE FROM {schema}.batch_counts WHERE batch = %(batch)s::text)
DELETE FROM {schema}.batches WHERE id = %(batch)s::text
