-- The schema of a fresh store, to be read, with the other schema_*.sql. Stores are made by the
-- migrations; a test proves that both are equal.
CREATE TABLE {schema}.migrations (
    version bigint PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Widths first, texts last: less padding in the rows that are rewritten most.
CREATE TABLE {schema}.tasks (
    id uuid PRIMARY KEY,
    priority bigint NOT NULL,
    created_at bigint NOT NULL,
    run_at bigint,
    started_at bigint,
    finished_at bigint,
    expires_at bigint,
    timeout bigint,
    session bigint,
    claim bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    max_attempts bigint,
    losses bigint NOT NULL DEFAULT 0,
    crashes bigint NOT NULL DEFAULT 0,
    progress bigint,
    cancel_asked boolean NOT NULL DEFAULT false,
    parent uuid,
    state text NOT NULL,
    queue text NOT NULL,
    handler text NOT NULL,
    params text NOT NULL,
    tags text[],
    unique_key text,
    reason text,
    note text,
    outcome text,
    worker text,
    result text,
    error text,
    fingerprint text,
    rotations bigint NOT NULL DEFAULT 0,
    batch text COLLATE "C",
    want text,
    resource text COLLATE "C",
    tried text[],
    by_wall bigint,
    claim_lasts bigint,
    claim_expires_at bigint,
    claim_key text,
    order_key text COLLATE "C",
    meta text,
    partition text COLLATE "C",
    operation text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Every change of state writes the primary key and the indexes of the new state; no index is for all states.
CREATE INDEX tasks_pending ON {schema}.tasks (queue, priority, id) WHERE state = 'pending';
CREATE INDEX tasks_scheduled ON {schema}.tasks (queue, run_at) WHERE state = 'scheduled';
CREATE INDEX tasks_held ON {schema}.tasks (handler, id) WHERE state = 'held' AND reason = 'handler';
CREATE INDEX tasks_running ON {schema}.tasks (session, claim_expires_at, id) WHERE state = 'running';
CREATE INDEX tasks_cancel_asked ON {schema}.tasks (session, id) WHERE state = 'running' AND cancel_asked;
CREATE INDEX tasks_failed ON {schema}.tasks (fingerprint, handler, id, finished_at) WHERE state = 'failed';
CREATE INDEX tasks_failed_by_id ON {schema}.tasks (id) WHERE state = 'failed';
CREATE INDEX tasks_cancelled_by_id ON {schema}.tasks (id) WHERE state = 'cancelled';
CREATE INDEX tasks_finished ON {schema}.tasks (state, finished_at)
    WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NULL;

-- Claims with a time limit of their own, for the sweep, and those that may be asked for again; no other task pays for
-- these.
CREATE INDEX tasks_limited ON {schema}.tasks (claim_expires_at) WHERE claim_expires_at IS NOT NULL AND state = 'running';
CREATE INDEX tasks_repeatable ON {schema}.tasks (claim_key) WHERE claim_key IS NOT NULL AND state = 'running';

-- Tasks with moments that follow the wall clock (model.task).
CREATE INDEX tasks_by_wall ON {schema}.tasks (by_wall) WHERE by_wall IS NOT NULL;

-- Items of batches; no other task pays for these.
CREATE INDEX tasks_items_held ON {schema}.tasks (batch, reason, queue, priority, id)
    WHERE state = 'held' AND batch IS NOT NULL;
CREATE INDEX tasks_items_live ON {schema}.tasks (batch, state, queue)
    WHERE batch IS NOT NULL AND state IN ('pending', 'scheduled', 'running');
CREATE INDEX tasks_items_ended ON {schema}.tasks (batch, state, finished_at)
    WHERE batch IS NOT NULL AND state IN ('completed', 'failed', 'cancelled');

-- Tasks that an operation retried and that failed again.
CREATE INDEX tasks_failed_again ON {schema}.tasks (operation)
    WHERE operation IS NOT NULL AND attempts > 0 AND state <> 'completed' AND state <> 'cancelled';

-- Tasks that stand behind the first one with their order key.
CREATE INDEX tasks_in_order ON {schema}.tasks (order_key, created_at, id) WHERE state = 'held' AND reason = 'order';

-- Unfinished tasks with a partition key, each in one of these; no other task pays for them.
CREATE INDEX tasks_keyed_pending ON {schema}.tasks (queue, partition, priority, id)
    WHERE partition IS NOT NULL AND state = 'pending';
CREATE INDEX tasks_keyed_running ON {schema}.tasks (queue, partition)
    WHERE partition IS NOT NULL AND state = 'running';
CREATE INDEX tasks_keyed_scheduled ON {schema}.tasks (queue, partition)
    WHERE partition IS NOT NULL AND state = 'scheduled';
CREATE INDEX tasks_keyed_held ON {schema}.tasks (queue, partition, batch, reason, priority, id)
    WHERE partition IS NOT NULL AND state = 'held';

-- The first unfinished task with each order key. Each act that may change who is first locks the row: before tasks, and
-- all rows of a transaction by key.
CREATE TABLE {schema}.order_heads (
    key text COLLATE "C" PRIMARY KEY,
    task uuid NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Runs that did not finish their task; the run that did is in the task's own row.
CREATE TABLE {schema}.attempts (
    task uuid NOT NULL,
    claim bigint NOT NULL,
    attempt bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    session bigint,
    outcome text NOT NULL,
    worker text,
    error text,
    PRIMARY KEY (task, claim)
);

-- A key without `until` is taken while its task is unfinished: finishing a task does not touch its key.
CREATE TABLE {schema}.uniques (
    key text PRIMARY KEY,
    task uuid NOT NULL,
    until bigint
);

-- `declared` is JSON: what the app `declared_by` declares. `limited` names the settings that an operator set above that.
-- Of a queue with partitions, `key_texts` and `key_names` are the parts of the template (`partition.key_parts`), and
-- `helped` says which keys of others a slot takes tasks of: 'all', 'missing' (those that no slot has) or 'none'.
CREATE TABLE {schema}.queues (
    name text PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    paused_by text,
    paused_at bigint,
    capacity bigint,
    rate_counts bigint[],
    rate_spans bigint[],
    declared text,
    declared_by text,
    limited text[] NOT NULL DEFAULT '{}',
    key_texts text[],
    key_names text[],
    helped text,
    max_per_key bigint,
    paused_reason text
);

-- Figures grow by appended changes, so that concurrent writers never meet; a sweep folds them into `counts`.
CREATE TABLE {schema}.counts (
    queue text NOT NULL,
    state text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (queue, state)
);

-- A change with a batch counts for its queue and for the batch. One with a handler counts in the flows too, as a task that
-- came to this state, if that is an end, and by what became of its run (`run`), in the bucket of `at`.
CREATE TABLE {schema}.count_deltas (
    queue text NOT NULL,
    state text NOT NULL,
    n bigint NOT NULL,
    batch text COLLATE "C",
    handler text,
    run text,
    at bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE {schema}.batch_counts (
    batch text COLLATE "C" NOT NULL,
    queue text NOT NULL,
    state text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (batch, queue, state)
);

CREATE TABLE {schema}.starts (
    queue text NOT NULL,
    at bigint NOT NULL
);

CREATE INDEX starts_by_queue ON {schema}.starts (queue, at);

-- `remote`: its tasks are run by remote workers. `about` is JSON. `routed`: it has a fallback, or gets dead letters
-- (`failure.has_routes`).
CREATE TABLE {schema}.handlers (
    name text PRIMARY KEY,
    queue text NOT NULL,
    policy text NOT NULL,
    schema text NOT NULL,
    resources text COLLATE "C",
    remote boolean NOT NULL DEFAULT false,
    about text NOT NULL DEFAULT '{}',
    number bigint NOT NULL,
    created_at bigint NOT NULL DEFAULT 0,
    updated_at bigint NOT NULL DEFAULT 0,
    routed boolean NOT NULL DEFAULT false
);

CREATE INDEX handlers_bound ON {schema}.handlers (queue, name COLLATE "C") WHERE resources IS NOT NULL;
CREATE UNIQUE INDEX handlers_by_number ON {schema}.handlers (number);

-- Whether all handlers of a queue are remote.
CREATE INDEX handlers_by_queue ON {schema}.handlers (remote, queue);

CREATE INDEX handlers_routed ON {schema}.handlers (name) WHERE routed;

CREATE TABLE {schema}.sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host text NOT NULL,
    boot_id text NOT NULL,
    pid bigint NOT NULL,
    kind text NOT NULL,
    handlers text[] NOT NULL,
    ttl bigint NOT NULL,
    opened_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    snapshot text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE {schema}.wishes (
    key text PRIMARY KEY,
    value text,
    version bigint NOT NULL,
    by text
);

-- One row, locked by every wish: versions become visible in their order.
CREATE TABLE {schema}.desired (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL
);

INSERT INTO {schema}.desired (version) VALUES (0);

-- One row, locked by a session that takes the lead. `term` stays when there is no leader, so that none is used twice.
-- `refusing` is why the leader lets no new tasks in.
CREATE TABLE {schema}.leader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    term bigint NOT NULL,
    session bigint,
    refusing text
);

INSERT INTO {schema}.leader (term) VALUES (0);

-- `rules` are those that hold. `declared` and `limited` are JSON: what code declares, and what an operator set above it.
CREATE TABLE {schema}.pools (
    name text COLLATE "C" PRIMARY KEY,
    rules text NOT NULL,
    declared text,
    limited text
);

-- Columns for what claims look at; two JSON texts for what only the rules of members look at.
CREATE TABLE {schema}.resources (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rank bigint NOT NULL,
    last_used_at bigint NOT NULL,
    available_at bigint NOT NULL,
    blacklisted_until bigint NOT NULL,
    in_use bigint NOT NULL,
    enabled boolean NOT NULL,
    stage text NOT NULL,
    pool text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    labels text[] NOT NULL,
    settings text NOT NULL,
    record text NOT NULL,
    UNIQUE (pool, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX resources_ready ON {schema}.resources (pool, rank, last_used_at, name) WHERE stage = 'ready';
CREATE INDEX resources_away ON {schema}.resources (pool, available_at) WHERE stage = 'away';

-- Uses are numbered, so that the n-th newest one is found without counting.
CREATE TABLE {schema}.uses (
    resource bigint NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (resource, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.bindings (
    until bigint NOT NULL,
    pool text COLLATE "C" NOT NULL,
    key text NOT NULL,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (pool, key)
);

CREATE INDEX bindings_by_end ON {schema}.bindings (until);

CREATE TABLE {schema}.strikes (
    at bigint NOT NULL,
    pool text COLLATE "C" NOT NULL,
    destination text NOT NULL,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (pool, destination, name)
);

-- What is remembered of removed members, by name, until limits count their uses no more.
CREATE TABLE {schema}.departed (
    pool text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    until bigint NOT NULL,
    kept text NOT NULL,
    PRIMARY KEY (pool, name)
);

CREATE INDEX departed_by_end ON {schema}.departed (until);

CREATE TABLE {schema}.leases (
    id text PRIMARY KEY,
    leased_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    pool text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    given text NOT NULL
);

CREATE INDEX leases_by_end ON {schema}.leases (expires_at);

CREATE TABLE {schema}.lanes (
    name text COLLATE "C" PRIMARY KEY,
    max_running bigint NOT NULL DEFAULT 1
);

-- `unfinished` is counted under the row's lock, so that exactly one act ends the batch; all other figures are appended.
CREATE TABLE {schema}.batches (
    id text COLLATE "C" PRIMARY KEY,
    rank bigint NOT NULL,
    unfinished bigint NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    status text NOT NULL,
    lane text COLLATE "C" NOT NULL,
    name text NOT NULL,
    data text NOT NULL,
    by text,
    reason text,
    on_complete text,
    run bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE INDEX batches_in_line ON {schema}.batches (lane, rank, id)
    WHERE status NOT IN ('cancelled', 'done', 'done_with_errors');
CREATE INDEX batches_running ON {schema}.batches (id) WHERE status = 'running';
CREATE INDEX batches_ended ON {schema}.batches (finished_at, id)
    WHERE status IN ('cancelled', 'done', 'done_with_errors');

-- Keys of the HTTP API. Of the secret there is only a digest.
CREATE TABLE {schema}.api_keys (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    digest text NOT NULL,
    roles text[] NOT NULL,
    created_at bigint NOT NULL,
    created_by text,
    revoked_at bigint
);

CREATE UNIQUE INDEX api_keys_by_name ON {schema}.api_keys (name) WHERE revoked_at IS NULL;

-- Requests that may be repeated: a digest of the body, and the ids that were given.
CREATE TABLE {schema}.requests (
    key text PRIMARY KEY,
    at bigint NOT NULL,
    body text NOT NULL,
    ids text[] NOT NULL
);

CREATE INDEX requests_by_time ON {schema}.requests (at);

-- What the code of each app declares, as JSON; which versions of it there were; and which sessions declared them.
CREATE TABLE {schema}.apps (
    name text COLLATE "C" PRIMARY KEY,
    fingerprint text NOT NULL,
    queues text NOT NULL,
    subscriptions text NOT NULL,
    events text NOT NULL
);

CREATE TABLE {schema}.app_fingerprints (
    app text NOT NULL,
    fingerprint text NOT NULL,
    PRIMARY KEY (app, fingerprint)
);

CREATE TABLE {schema}.app_sessions (
    app text NOT NULL,
    session bigint NOT NULL,
    fingerprint text NOT NULL,
    PRIMARY KEY (app, session)
);

-- `body` is the whole schedule as JSON. `next_at` is by the wall clock.
CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    next_at bigint,
    version bigint NOT NULL,
    paused boolean NOT NULL,
    app text,
    withdrawn boolean NOT NULL,
    body text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE INDEX schedules_due ON {schema}.schedules (next_at, name) WHERE NOT paused AND next_at IS NOT NULL;

-- `handlers` are those that the event went to.
CREATE TABLE {schema}.events (
    id text COLLATE "C" PRIMARY KEY,
    published_at bigint NOT NULL,
    name text NOT NULL,
    data text NOT NULL,
    key text,
    by text,
    handlers text[]
);

CREATE INDEX events_by_name ON {schema}.events (name, id);
CREATE INDEX events_by_time ON {schema}.events (published_at);

-- As `partition.partition_key` makes it.
CREATE FUNCTION {schema}.partition_key(texts text[], names text[], params text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    given json := params::json;
    made text := '';
BEGIN
    FOR part IN 1 .. cardinality(texts) LOOP
        made := made || texts[part];
        CONTINUE WHEN names[part] IS NULL;
        IF json_typeof(given -> names[part]) IN ('string', 'number', 'boolean') THEN
            made := made || (given ->> names[part]);
        ELSE
            RETURN NULL;
        END IF;
    END LOOP;
    IF length(made) > 200 THEN
        RETURN left(made, 167) || '~' || md5(made);
    END IF;
    RETURN nullif(made, '');
END $$;

-- The store's clock is the server's clock plus `shift`, which changes only when the server's clock was set: then the first
-- client that notices writes the shift that makes up for it. Clients whose uptime agreed with this clock without a gap
-- confirmed it from `confirmed_since` to `confirmed_at`, both by this clock. A statement reads the shift and passes it to
-- `steady_now` with the moment that its client expects; more than `slack` away from that, the statement is refused, and
-- the client looks again (server_clock.py).
CREATE TABLE {schema}.clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    shift bigint NOT NULL,
    confirmed_since bigint NOT NULL DEFAULT 0,
    confirmed_at bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO {schema}.clock (shift) VALUES (0);

CREATE FUNCTION {schema}.steady_now(shift bigint, expected bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    steady bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift;
BEGIN
    IF expected IS NULL OR steady BETWEEN expected - 1000000 AND expected + 1000000 THEN
        RETURN steady;
    END IF;
    RAISE EXCEPTION 'the clock of the server was set, or this call came late' USING ERRCODE = 'PB001';
END $$;

CREATE FUNCTION {schema}.steady_now(shift bigint, expected bigint, slack bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    steady bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift;
BEGIN
    IF expected IS NULL OR steady BETWEEN expected - slack AND expected + slack THEN
        RETURN steady;
    END IF;
    RAISE EXCEPTION 'the clock of the server was set, or this call came late' USING ERRCODE = 'PB001';
END $$;

-- Tasks for people and for views of their own: these columns stay, whatever becomes of the tables. A migration that changes
-- the table of tasks replaces the view. `params`, `result` and `error` are JSON as text.
CREATE VIEW {schema}.task_view AS
SELECT
    id, handler, queue, partition, batch, state, reason, priority, params, result, error, attempts, losses, progress, note,
    worker, resource, unique_key, parent,
    to_timestamp((created_at - shift) / 1e6) AS created_at, to_timestamp((run_at - shift) / 1e6) AS run_at,
    to_timestamp((started_at - shift) / 1e6) AS started_at, to_timestamp((finished_at - shift) / 1e6) AS finished_at
FROM {schema}.tasks, {schema}.clock;
