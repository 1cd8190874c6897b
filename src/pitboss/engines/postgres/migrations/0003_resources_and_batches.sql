ALTER TABLE {schema}.tasks
    ADD COLUMN rotations bigint NOT NULL DEFAULT 0,
    ADD COLUMN batch text COLLATE "C",
    ADD COLUMN want text,
    ADD COLUMN resource text COLLATE "C",
    ADD COLUMN tried text[];

-- Items of a batch that is not running are held by the hundred thousand: who looks for a handler's passes none of them.
DROP INDEX {schema}.tasks_held;
CREATE INDEX tasks_held ON {schema}.tasks (handler, id) WHERE state = 'held' AND reason = 'handler';
CREATE INDEX tasks_items_held ON {schema}.tasks (batch, reason, queue, priority, id)
    WHERE state = 'held' AND batch IS NOT NULL;
CREATE INDEX tasks_items_live ON {schema}.tasks (batch, state, queue)
    WHERE batch IS NOT NULL AND state IN ('pending', 'scheduled', 'running');
CREATE INDEX tasks_items_ended ON {schema}.tasks (batch, state, finished_at)
    WHERE batch IS NOT NULL AND state IN ('completed', 'failed', 'cancelled');

-- A change with a batch counts for its queue and for the batch.
ALTER TABLE {schema}.count_deltas ADD COLUMN batch text COLLATE "C";

CREATE TABLE {schema}.batch_counts (
    batch text COLLATE "C" NOT NULL,
    queue text NOT NULL,
    state text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (batch, queue, state)
);

ALTER TABLE {schema}.handlers ADD COLUMN resources text COLLATE "C";
CREATE INDEX handlers_bound ON {schema}.handlers (queue, name COLLATE "C") WHERE resources IS NOT NULL;

CREATE TABLE {schema}.pools (
    name text COLLATE "C" PRIMARY KEY,
    rules text NOT NULL
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
    on_complete text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE INDEX batches_in_line ON {schema}.batches (lane, rank, id)
    WHERE status NOT IN ('cancelled', 'done', 'done_with_errors');
CREATE INDEX batches_running ON {schema}.batches (id) WHERE status = 'running';
CREATE INDEX batches_ended ON {schema}.batches (finished_at, id)
    WHERE status IN ('cancelled', 'done', 'done_with_errors');
