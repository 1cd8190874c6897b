WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), changed AS (
    INSERT INTO {schema}.queues AS q (name, paused, paused_by, paused_at, capacity, rate_counts, rate_spans)
    SELECT %(name)s::text, coalesce(%(paused)s::boolean, false),
        CASE WHEN %(paused)s::boolean THEN %(by)s::text END, CASE WHEN %(paused)s::boolean THEN now END,
        %(capacity)s::bigint, %(counts)s::bigint[], %(spans)s::bigint[]
    FROM clock
    ON CONFLICT (name) DO UPDATE SET
        paused = coalesce(%(paused)s::boolean, q.paused),
        paused_by = CASE WHEN %(paused)s::boolean IS NULL THEN q.paused_by ELSE excluded.paused_by END,
        paused_at = CASE WHEN %(paused)s::boolean IS NULL THEN q.paused_at ELSE excluded.paused_at END,
        capacity = CASE WHEN %(set_capacity)s::boolean THEN excluded.capacity ELSE q.capacity END,
        rate_counts = CASE WHEN %(set_rate)s::boolean THEN excluded.rate_counts ELSE q.rate_counts END,
        rate_spans = CASE WHEN %(set_rate)s::boolean THEN excluded.rate_spans ELSE q.rate_spans END
    RETURNING name
)
SELECT pg_notify(%(channel)s::text, name) FROM changed
