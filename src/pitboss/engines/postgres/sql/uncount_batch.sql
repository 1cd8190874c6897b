-- Its figures stay those of its queues.
UPDATE {schema}.count_deltas SET batch = NULL WHERE batch = %(batch)s::text
