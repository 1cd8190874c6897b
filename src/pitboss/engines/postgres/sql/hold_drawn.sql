-- What was drawn of a batch and has not started is held again. Who is about to claim one is waited for.
WITH drawn AS MATERIALIZED (
    SELECT ctid AS place, state AS was FROM {schema}.tasks
    WHERE batch = %(batch)s::text AND state IN ('pending', 'scheduled') ORDER BY id FOR UPDATE
), moved AS (
    UPDATE {schema}.tasks AS t SET state = 'held', reason = 'batch'
    FROM drawn WHERE t.ctid = drawn.place RETURNING t.queue, was
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, was, -count(*), %(batch)s::text FROM moved GROUP BY queue, was
    UNION ALL
    SELECT queue, 'held', count(*), %(batch)s::text FROM moved GROUP BY queue
)
SELECT count(*) FROM moved
