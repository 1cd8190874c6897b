-- Whether items of these batches run, and whether any have failed.
SELECT id, EXISTS (
    SELECT FROM {schema}.tasks WHERE batch = b.id AND state = 'running'
), EXISTS (
    SELECT FROM {schema}.tasks WHERE batch = b.id AND state = 'failed'
) FROM unnest(%(ids)s::text[]) AS b (id)
