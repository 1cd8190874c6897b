-- name: declare_lock
-- One definition at a time: a schedule that is new to one call must not be added by another one meanwhile.
SELECT pg_advisory_xact_lock(hashtextextended(%(channel)s::text || ' declarations', 0))

-- name: wall_columns
-- The wall clock that the caller handed in, or else the server's.
coalesce(%(wall)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- name: server_moments
SELECT {now}, {wall_columns}

-- name: app_get
-- What the app declares, which fingerprints it had, and which of them live sessions declared.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT a.fingerprint, a.queues, ARRAY(
    SELECT fingerprint FROM {schema}.app_fingerprints WHERE app = %(app)s::text
), ARRAY(
    SELECT d.fingerprint FROM {schema}.app_sessions AS d JOIN {schema}.sessions AS s ON s.number = d.session
    WHERE d.app = %(app)s::text AND NOT s.ended AND s.expires_at > now
)
FROM clock LEFT JOIN {schema}.apps AS a ON a.name = %(app)s::text

-- name: app_note_session
-- Sessions that are forgotten are forgotten here too.
WITH gone AS (
    DELETE FROM {schema}.app_sessions
    WHERE app = %(app)s::text AND session <> %(session)s::bigint
        AND session <> ALL (ARRAY(SELECT number FROM {schema}.sessions))
)
INSERT INTO {schema}.app_sessions (app, session, fingerprint)
VALUES (%(app)s::text, %(session)s::bigint, %(fingerprint)s::text)
ON CONFLICT (app, session) DO UPDATE SET fingerprint = excluded.fingerprint

-- name: app_write
WITH seen AS (
    INSERT INTO {schema}.app_fingerprints (app, fingerprint) VALUES (%(app)s::text, %(fingerprint)s::text)
    ON CONFLICT DO NOTHING
)
INSERT INTO {schema}.apps (name, fingerprint, queues, subscriptions, events)
VALUES (%(app)s::text, %(fingerprint)s::text, %(queues)s::text, %(subscriptions)s::text, %(events)s::text)
ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint, queues = excluded.queues,
    subscriptions = excluded.subscriptions, events = excluded.events

-- name: app_list
SELECT name, queues, subscriptions, events FROM {schema}.apps ORDER BY name

-- name: subscription_list
-- And why new events are refused.
SELECT l.refusing, a.subscriptions FROM {schema}.leader AS l
LEFT JOIN {schema}.apps AS a ON a.subscriptions <> '[]'
ORDER BY a.name

-- name: queue_create
INSERT INTO {schema}.queues (name) SELECT unnest(%(names)s::text[]) ON CONFLICT DO NOTHING

-- name: queue_lock
-- The moment comes with each.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), found AS MATERIALIZED (
    SELECT name, paused, paused_by, paused_at, capacity, rate_counts, rate_spans, declared, limited, max_per_key,
        paused_reason, declared_by
    FROM {schema}.queues WHERE name = ANY (%(names)s::text[]) ORDER BY name FOR UPDATE
)
SELECT found.*, now FROM clock, found

-- name: queue_write
-- Write locked queues, and ring them.
WITH written AS (
    UPDATE {schema}.queues AS q SET paused = n.paused, paused_by = n.paused_by, paused_at = n.paused_at,
        paused_reason = n.paused_reason,
        capacity = n.capacity, rate_counts = n.counts::bigint[], rate_spans = n.spans::bigint[],
        declared = n.declared, limited = n.limited::text[], max_per_key = n.max_per_key,
        declared_by = n.declared_by, key_texts = n.key_texts::text[], key_names = n.key_names::text[], helped = n.helped
    FROM unnest(
        %(names)s::text[], %(paused)s::boolean[], %(paused_by)s::text[], %(paused_at)s::bigint[],
        %(capacities)s::bigint[], %(counts)s::text[], %(spans)s::text[], %(declared)s::text[], %(limited)s::text[],
        %(max_per_key)s::bigint[], %(declared_by)s::text[], %(key_texts)s::text[], %(key_names)s::text[],
        %(helped)s::text[], %(paused_reasons)s::text[]
    ) AS n (
        name, paused, paused_by, paused_at, capacity, counts, spans, declared, limited, max_per_key, declared_by,
        key_texts, key_names, helped, paused_reason
    )
    WHERE q.name = n.name RETURNING q.name
)
SELECT pg_notify(%(channel)s::text, CASE WHEN length(names) < 7000 THEN names ELSE '*' END)
FROM (SELECT string_agg(name, ',') AS names FROM written) AS rung WHERE names IS NOT NULL
