WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), found AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
        SELECT ctid AS place, queue AS lane, state AS was FROM {schema}.tasks WHERE id = wanted.task
    ) AS t
), moved AS (
    UPDATE {schema}.tasks AS t SET
        state = CASE WHEN was = 'running' THEN 'running' ELSE 'cancelled' END,
        cancel_asked = was = 'running',
        reason = %(reason)s::text,
        finished_at = CASE WHEN was = 'running' THEN finished_at ELSE now END
    FROM found, clock WHERE t.ctid = found.place
    RETURNING lane, was, t.batch
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT lane, state, sign * n, batch
    FROM (SELECT lane, was, batch, count(*) AS n FROM moved WHERE was <> 'running' GROUP BY lane, was, batch) AS ended,
        LATERAL (VALUES (was, -1), ('cancelled', 1)) AS change (state, sign)
)
SELECT batch, count(*) FILTER (WHERE was <> 'running'), count(*) FILTER (WHERE was = 'running') FROM moved GROUP BY batch
