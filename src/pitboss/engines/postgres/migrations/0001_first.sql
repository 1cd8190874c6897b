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
    fingerprint text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Every change of state writes the primary key and the one index of the new state; no index is for all states.
CREATE INDEX tasks_pending ON {schema}.tasks (queue, priority, id) WHERE state = 'pending';
CREATE INDEX tasks_scheduled ON {schema}.tasks (queue, run_at) WHERE state = 'scheduled';
CREATE INDEX tasks_held ON {schema}.tasks (handler, id) WHERE state = 'held';
CREATE INDEX tasks_running ON {schema}.tasks (session, id) WHERE state = 'running';
CREATE INDEX tasks_cancel_asked ON {schema}.tasks (session, id) WHERE state = 'running' AND cancel_asked;
CREATE INDEX tasks_failed ON {schema}.tasks (fingerprint, id) WHERE state = 'failed';
CREATE INDEX tasks_finished ON {schema}.tasks (finished_at) WHERE state IN ('completed', 'failed', 'cancelled');

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

CREATE TABLE {schema}.queues (
    name text PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    paused_by text,
    paused_at bigint,
    capacity bigint,
    rate_counts bigint[],
    rate_spans bigint[]
);

-- Figures grow by appended changes, so that concurrent writers never meet; a sweep folds them into `counts`.
CREATE TABLE {schema}.counts (
    queue text NOT NULL,
    state text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (queue, state)
);

CREATE TABLE {schema}.count_deltas (
    queue text NOT NULL,
    state text NOT NULL,
    n bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE {schema}.starts (
    queue text NOT NULL,
    at bigint NOT NULL
);

CREATE INDEX starts_by_queue ON {schema}.starts (queue, at);

CREATE TABLE {schema}.handlers (
    name text PRIMARY KEY,
    queue text NOT NULL,
    policy text NOT NULL,
    schema text NOT NULL
);

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
