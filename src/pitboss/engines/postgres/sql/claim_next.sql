-- Claim the next tasks. Nothing is claimed if the session is dead, or if there is a `snag`: "plan" (the queues need
-- more than was planned; the answer says what they are), "due" (scheduled tasks must become pending first), "odd"
-- (expired tasks, or tasks for other sessions, are in front) or "lost" (a task that was lost before must not be claimed
-- ahead).
-- The places in braces are for what slots of remote workers add (claim_next_parts.sql): managers do not pay for it.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), open_queues AS MATERIALIZED (
    SELECT q.name, CASE WHEN q.rate_counts IS NULL THEN %(wanted)s::bigint
            WHEN %(fresh)s::boolean THEN 0 ELSE least(r.room, %(wanted)s) END AS room,
        q.rate_counts IS NOT NULL AS rated, q.rate_counts IS NOT NULL AND r.name IS NULL AS unmeasured,
        EXISTS (SELECT FROM {schema}.handlers AS h WHERE h.queue = q.name AND h.resources IS NOT NULL) AS pooled,
        q.key_names IS NOT NULL AS keyed
    FROM {schema}.queues AS q
    LEFT JOIN unnest(%(rated)s::text[], %(rooms)s::bigint[]) AS r (name, room) ON r.name = q.name
    WHERE {asked_condition}
), plan AS MATERIALIZED (
    SELECT coalesce(bool_or(rated), false) AS rated, coalesce(bool_or(pooled), false) AS pooled,
        coalesce(bool_or(keyed), false) AS keyed, coalesce(bool_or(pooled OR keyed OR unmeasured), false) AS wrong,
        %(draw)s::boolean AND EXISTS (
            SELECT FROM {schema}.batches AS b, open_queues AS q, LATERAL (
                SELECT FROM {schema}.tasks
                WHERE state = 'held' AND batch = b.id AND reason = 'batch' AND queue = q.name LIMIT 1
            ) AS held WHERE b.status = 'running'
        ) AS drawable
    FROM open_queues
), before AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM {schema}.sessions WHERE number = %(session)s::bigint AND NOT ended AND expires_at > now
    ) AS alive, rated, pooled, keyed, drawable, CASE
        WHEN wrong OR drawable THEN 'plan'
        WHEN %(promote)s::boolean AND EXISTS (
            SELECT FROM open_queues, LATERAL (
                SELECT FROM {schema}.tasks WHERE state = 'scheduled' AND queue = name AND run_at <= now LIMIT 1
            ) AS due
        ) THEN 'due'
    END AS snag
    FROM clock, plan
), {picked}, picked_snag AS MATERIALIZED (
    SELECT CASE
        WHEN bool_or(odd) AND NOT %(choosy)s::boolean THEN 'odd'
        WHEN bool_or(losses > 0) AND %(ahead)s::bigint > 0 AND NOT %(fresh)s::boolean THEN 'lost'
    END AS snag FROM picked
), given AS (
    UPDATE {schema}.tasks AS t SET
        state = 'running', session = %(session)s::bigint, claim = claim + 1, started_at = (SELECT now FROM clock),
        reason = NULL, progress = NULL, note = NULL, resource = NULL, {claimed}
    FROM picked WHERE t.ctid = picked.place AND (SELECT snag IS NULL FROM picked_snag)
    RETURNING {claim_columns}{number}
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, batch)
    SELECT queue, state, sign * n, batch
    FROM (SELECT queue, batch, count(*) AS n FROM given GROUP BY queue, batch) AS moved,
        (VALUES ('pending', -1), ('running', 1)) AS change (state, sign)
), next AS MATERIALIZED (
    SELECT min(run_at) AS due FROM clock, open_queues, LATERAL (
        SELECT run_at FROM {schema}.tasks
        WHERE state = 'scheduled' AND queue = name AND run_at > now ORDER BY run_at LIMIT 1
    ) AS soonest
)
SELECT now, alive, coalesce(before.snag, picked_snag.snag), next.due, rated, pooled, keyed, drawable, given.*
FROM clock CROSS JOIN before CROSS JOIN picked_snag CROSS JOIN next LEFT JOIN given ON true
ORDER BY {given_order}
