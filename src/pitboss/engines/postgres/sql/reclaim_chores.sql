-- What a sweep has to do: first the things that need locks, one by one; last whether there is anything else.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT EXISTS (
    SELECT FROM {schema}.sessions AS s, LATERAL (
        SELECT FROM {schema}.tasks WHERE state = 'running' AND session = s.number AND claim_expires_at IS NULL
            AND {lost_bound_condition} LIMIT 1
    ) AS t WHERE s.ended OR s.expires_at <= now
) OR coalesce((
    SELECT true FROM {schema}.tasks WHERE state = 'running' AND claim_expires_at <= now
        AND {lost_bound_condition} ORDER BY claim_expires_at LIMIT 1
), false), EXISTS (
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
), EXISTS (SELECT FROM {schema}.count_deltas) OR EXISTS (SELECT FROM {schema}.starts)
OR EXISTS (SELECT FROM {schema}.new_partitions)
OR EXISTS (
    SELECT FROM {schema}.sessions AS s WHERE s.expires_at + 3600000000 <= now OR (s.ended OR s.expires_at <= now)
        AND (SELECT true FROM {schema}.tasks
            WHERE state = 'running' AND session = s.number AND claim_expires_at IS NULL LIMIT 1)
) OR coalesce((
    SELECT true FROM {schema}.tasks WHERE state = 'running' AND claim_expires_at <= now ORDER BY claim_expires_at LIMIT 1
), false) OR EXISTS (
    SELECT FROM {schema}.handlers AS h
    WHERE (SELECT true FROM {schema}.tasks
        WHERE state = 'held' AND handler = h.name AND reason = 'handler' AND batch IS NULL LIMIT 1)
) OR EXISTS (SELECT FROM {schema}.bindings WHERE until <= now)
OR EXISTS (SELECT FROM {schema}.strikes WHERE at <= now - %(kept)s::bigint)
OR EXISTS (SELECT FROM {schema}.requests WHERE at <= now - %(remembered)s::bigint)
FROM clock
