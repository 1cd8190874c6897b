-- Judged by the statement's snapshot. A row that changed since then has another place (`ctid`): it is not written, and
-- the caller asks again.
-- A task with a batch, a resource or an order key that it leaves is not written either, nor a failure that something may
-- follow ("bound"): `settle_bound` locks first, and puts what follows.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), alive AS MATERIALIZED (
    SELECT number FROM {schema}.sessions, clock
    WHERE number = ANY (%(sessions)s::bigint[]) AND NOT ended AND expires_at > now
), judged AS MATERIALIZED (
    SELECT i.ord, i.id, i.session, i.claim, i.target, i.outcome, i.delay, i.result, i.error, i.fingerprint, i.reason,
        i.flags, i.progress, i.note, i.worker, i.ran, t.place, t.started, t.attempts,
        CASE WHEN t.cancel_asked AND i.target IN ('held', 'scheduled', 'pending') THEN 'cancelled'
            ELSE i.target END AS state,
        CASE
            WHEN t.place IS NULL THEN 'task'
            WHEN t.session = i.session AND t.claim = i.claim AND t.state <> 'running' AND t.outcome = i.outcome
                THEN 'repeat'
            WHEN i.session NOT IN (SELECT number FROM alive) AND (t.ends IS NULL OR t.another) THEN 'session'
            WHEN t.another THEN 'claim'
            WHEN t.ends <= (SELECT now FROM clock) THEN 'time'
            WHEN i.target = 'running' THEN 'progress'
            WHEN t.bound OR (t.order_key IS NOT NULL AND (t.cancel_asked OR i.over)) THEN 'bound'
            WHEN i.target = 'failed' AND EXISTS (SELECT FROM {schema}.handlers WHERE routed) THEN 'bound'
            ELSE 'apply'
        END AS answer
    FROM (
        SELECT place AS ord, id, session, claim, coalesce(state, 'completed') AS target,
            coalesce(outcome, 'completed') AS outcome, delay, result, error, fingerprint, reason,
            coalesce(flags, 8) AS flags, progress, note, worker, ran,
            coalesce(state, 'completed') IN ('completed', 'failed', 'cancelled') AS over
        FROM unnest(
            %(ids)s::uuid[], %(tokens)s::bigint[], %(claims)s::bigint[], %(states)s::text[], %(outcomes)s::text[],
            %(delays)s::bigint[], %(results)s::text[], %(errors)s::text[], %(prints)s::text[],
            %(reasons)s::text[], %(flags)s::bigint[], %(shares)s::bigint[], %(notes)s::text[],
            %(workers)s::text[], %(rans)s::bigint[]
        ) WITH ORDINALITY AS raw (
            id, session, claim, state, outcome, delay, result, error, fingerprint,
            reason, flags, progress, note, worker, ran, place
        )
    ) AS i LEFT JOIN LATERAL (
        SELECT ctid AS place, session, claim, state, outcome, cancel_asked, attempts, order_key, claim_expires_at AS ends,
            session IS DISTINCT FROM i.session OR claim <> i.claim OR state <> 'running' AS another,
            coalesce(batch, resource, tried[1]) IS NOT NULL OR rotations > 0 AS bound,
            CASE WHEN i.ran IS NULL THEN started_at ELSE (SELECT now FROM clock) - i.ran END AS started
        FROM {schema}.tasks WHERE id = i.id
    ) AS t ON true
), reported AS (
    -- A report of a claim without a time limit of its own changes no column of an index.
    UPDATE {schema}.tasks AS t SET progress = coalesce(j.progress, t.progress),
        note = CASE WHEN j.progress IS NULL THEN t.note ELSE j.note END,
        claim_expires_at = (SELECT now FROM clock) + t.claim_lasts
    FROM judged AS j WHERE t.ctid = j.place AND j.answer = 'progress'
    RETURNING j.ord
), done AS (
    UPDATE {schema}.tasks AS t SET
        state = j.state, outcome = j.outcome, worker = j.worker, result = j.result, cancel_asked = false,
        attempts = t.attempts + (over OR j.flags & 1 > 0)::int,
        losses = t.losses + (j.flags & 2 > 0)::int,
        crashes = t.crashes + (j.flags & 4 > 0)::int,
        error = CASE WHEN over OR j.error IS NOT NULL THEN j.error ELSE t.error END,
        fingerprint = CASE WHEN over OR j.error IS NOT NULL THEN j.fingerprint ELSE t.fingerprint END,
        reason = CASE WHEN j.state = j.target THEN j.reason ELSE t.reason END,
        run_at = CASE WHEN j.state = 'scheduled' AND j.delay <> 0 THEN now + j.delay ELSE t.run_at END,
        started_at = CASE WHEN over THEN j.started END,
        finished_at = CASE WHEN over THEN now END
    FROM judged AS j, clock, LATERAL (SELECT j.state IN ('completed', 'failed', 'cancelled') AS over) AS o
    WHERE t.ctid = j.place AND j.answer = 'apply'
    RETURNING j.ord, j.id, j.claim, j.attempts, j.started, j.session, j.outcome, j.worker, j.error, j.flags, j.state,
        over, t.queue, t.handler, t.partition IS NOT NULL AS keyed
), recorded AS (
    INSERT INTO {schema}.attempts (task, claim, attempt, started_at, ended_at, session, outcome, worker, error)
    SELECT id, claim, attempts + 1, coalesce(started, now), now, session, outcome, worker, error
    FROM done, clock WHERE NOT over AND flags & 8 > 0
    ON CONFLICT DO NOTHING
), tally AS MATERIALIZED (
    SELECT queue, state, run, count(*) AS n, bool_or(keyed) AS keyed,
        CASE WHEN over OR run IS NOT NULL THEN handler END AS told
    FROM done, LATERAL (SELECT {run_columns} AS run) AS r GROUP BY queue, told, state, run
), counted AS (
    INSERT INTO {schema}.count_deltas (queue, state, n, handler, run, at)
    SELECT queue, state, n, told, run, now FROM tally, clock
    UNION ALL
    SELECT queue, 'running', -sum(n), NULL, NULL, NULL FROM tally GROUP BY queue
), rung AS MATERIALIZED (
    SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
    FROM (
        SELECT string_agg(DISTINCT queue, ',') AS names FROM tally WHERE state = 'pending' OR {capped_condition}
    ) AS ready WHERE names IS NOT NULL
)
SELECT ord, 'apply' FROM done LEFT JOIN rung ON true
UNION ALL SELECT ord, 'progress' FROM reported
UNION ALL SELECT ord, answer FROM judged WHERE answer NOT IN ('apply', 'progress')
