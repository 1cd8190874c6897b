-- Tasks that are locked are given, each with the resource that was found for it.
WITH found AS MATERIALIZED (
    SELECT * FROM unnest(%(places)s::tid[], %(resources)s::text[]) AS f (place, resource)
), given AS (
    UPDATE {schema}.tasks AS t SET
        state = 'running', session = %(session)s::bigint, claim = claim + 1, started_at = %(now)s::bigint,
        worker = NULL, reason = NULL, progress = NULL, note = NULL, resource = f.resource
    FROM found AS f WHERE t.ctid = f.place
    RETURNING t.id, t.claim, t.handler, t.queue, t.params, t.attempts, t.priority, t.max_attempts, t.timeout,
        t.losses, t.crashes, t.created_at, t.expires_at, t.parent, t.tags, t.batch, t.rotations
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, sign * n, batch
    FROM (SELECT queue, batch, count(*) AS n FROM given GROUP BY queue, batch) AS moved,
        (VALUES ('pending', -1), ('running', 1)) AS change (state, sign)
)
SELECT * FROM given
