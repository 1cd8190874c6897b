WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), ready AS MATERIALIZED (
    SELECT t.* FROM unnest(%(ids)s::uuid[]) AS wanted (task), LATERAL (
        SELECT ctid AS place FROM {schema}.tasks
        WHERE id = wanted.task AND state = 'held' AND reason = 'handler' FOR UPDATE
    ) AS t
)
UPDATE {schema}.tasks AS t SET
    state = CASE WHEN batch <> ALL (%(running)s::text[]) THEN 'held'
        WHEN run_at > (SELECT now FROM clock) THEN 'scheduled' ELSE 'pending' END,
    reason = CASE WHEN batch <> ALL (%(running)s::text[]) THEN 'batch' END
FROM ready WHERE t.ctid = ready.place
RETURNING t.queue, t.state, t.batch
