-- What a sweep has to do beside the plain tasks of dead sessions: locks must be taken for these first.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)
SELECT EXISTS (
    SELECT FROM {schema}.sessions AS s, LATERAL (
        SELECT FROM {schema}.tasks WHERE state = 'running' AND session = s.number
            AND (batch IS NOT NULL OR resource IS NOT NULL) LIMIT 1
    ) AS t WHERE s.ended OR s.expires_at <= now
), EXISTS (
    SELECT FROM {schema}.leases WHERE expires_at <= now
), EXISTS (
    SELECT FROM {schema}.handlers AS h, LATERAL (
        SELECT FROM {schema}.tasks WHERE state = 'held' AND handler = h.name AND reason = 'handler'
            AND batch IS NOT NULL LIMIT 1
    ) AS t
), ARRAY(
    SELECT name FROM {schema}.lanes AS l WHERE EXISTS (
        SELECT FROM {schema}.batches AS b
        WHERE b.lane = l.name AND status NOT IN ('cancelled', 'done', 'done_with_errors') AND status = 'queued'
    ) AND max_running > (
        SELECT count(*) FROM {schema}.batches AS b
        WHERE b.lane = l.name AND status NOT IN ('cancelled', 'done', 'done_with_errors')
            AND status IN ('running', 'pausing', 'cancelling')
    ) ORDER BY name
), ARRAY(
    SELECT id FROM {schema}.batches
    WHERE status NOT IN ('cancelled', 'done', 'done_with_errors') AND status = 'cancelling' ORDER BY id
)
FROM clock
