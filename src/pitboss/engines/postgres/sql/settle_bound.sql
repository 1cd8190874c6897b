-- Judged by the statement's snapshot. A row that changed since then has another place (`ctid`): it is not written, and
-- the caller asks again.
-- For claims with a batch or a resource, which are locked. The caller counts and rings.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), alive AS MATERIALIZED (
    SELECT number FROM {schema}.sessions, clock
    WHERE number = ANY (%(sessions)s::bigint[]) AND NOT ended AND expires_at > now
), judged AS MATERIALIZED (
    SELECT i.*, t.place, t.started, t.attempts,
        CASE WHEN t.cancel_asked AND i.target IN ('held', 'scheduled', 'pending') THEN 'cancelled'
            WHEN i.flags & 32 > 0 AND i.target IN ('scheduled', 'pending') THEN 'held' ELSE i.target END AS state,
        CASE
            WHEN t.place IS NULL THEN 'task'
            WHEN t.session = i.session AND t.claim = i.claim AND t.state <> 'running' AND t.outcome = i.outcome
                THEN 'repeat'
            WHEN i.session NOT IN (SELECT number FROM alive) AND (t.ends IS NULL OR t.another) THEN 'session'
            WHEN t.another THEN 'claim'
            WHEN t.ends <= (SELECT now FROM clock) THEN 'time'
            WHEN i.target = 'running' THEN 'progress'
            ELSE 'apply'
        END AS answer
    FROM (
        SELECT place AS ord, id, session, claim, coalesce(state, 'completed') AS target,
            coalesce(outcome, 'completed') AS outcome, delay, result, error, fingerprint, reason,
            coalesce(flags, 8) AS flags, progress, note, worker, ran, tried
        FROM unnest(
            %(ids)s::uuid[], %(tokens)s::bigint[], %(claims)s::bigint[], %(states)s::text[], %(outcomes)s::text[],
            %(delays)s::bigint[], %(results)s::text[], %(errors)s::text[], %(prints)s::text[],
            %(reasons)s::text[], %(flags)s::bigint[], %(shares)s::bigint[], %(notes)s::text[],
            %(workers)s::text[], %(rans)s::bigint[], %(tries)s::text[]
        ) WITH ORDINALITY AS raw (
            id, session, claim, state, outcome, delay, result, error, fingerprint,
            reason, flags, progress, note, worker, ran, tried, place
        )
    ) AS i LEFT JOIN LATERAL (
        SELECT ctid AS place, session, claim, state, outcome, cancel_asked, attempts, claim_expires_at AS ends,
            session IS DISTINCT FROM i.session OR claim <> i.claim OR state <> 'running' AS another,
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
        reason = CASE WHEN j.state = j.target THEN j.reason WHEN j.state = 'held' THEN 'batch' ELSE t.reason END,
        run_at = CASE WHEN j.target = 'scheduled' AND NOT over AND j.delay <> 0 THEN now + j.delay ELSE t.run_at END,
        tried = CASE WHEN j.state <> 'completed' THEN j.tried::text[] END,
        rotations = CASE WHEN j.state <> 'completed' THEN t.rotations + (j.flags & 16 > 0)::int ELSE 0 END,
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
)
SELECT ord, 'apply', state, queue, {capped_condition}, handler, {run_columns} FROM done
UNION ALL SELECT ord, 'progress', NULL, NULL, NULL, NULL, NULL FROM reported
UNION ALL SELECT ord, answer, NULL, NULL, NULL, NULL, NULL FROM judged WHERE answer NOT IN ('apply', 'progress')
UNION ALL SELECT NULL, 'now', now::text, NULL, NULL, NULL, NULL FROM clock
UNION ALL SELECT NULL, 'rules', name, rules, NULL, NULL, NULL FROM {schema}.pools WHERE name = ANY (%(pools)s::text[])
UNION ALL SELECT NULL, 'struck', name, NULL, NULL, NULL, NULL FROM unnest(%(pools)s::text[]) AS p (name)
    WHERE EXISTS (SELECT FROM {schema}.strikes AS s WHERE s.pool = p.name)
