-- The schema of a fresh store, with the other schema_*.sql. The migrations, one after the other, lead to exactly this (a
-- test proves it).
-- Times are whole microseconds since the epoch by the store's clock (`pitboss_clock`). JSON is canonical text.

-- One row per task, with the columns of model.task.Task. `tags` is NULL when there are none, and `fingerprint` repeats
-- that of the error, for grouping. The run that finished a task is in its own row; earlier runs are in `attempts`.
-- `member` is the number of what a running task holds; `resource` says its name, and stays. `want` and `tried` are JSON.
-- `by_wall` says which of its moments follow the wall clock (model.task). A claim of a remote worker has a time limit of
-- its own: how long it lasts, until when, and the key under which it is given again. Tasks with one `order_key` run one at
-- a time. `meta` is JSON: where the task comes from. `partition` is the key in a queue with partitions, `operation`
-- what last retried it.
CREATE TABLE pitboss_tasks (
    id TEXT PRIMARY KEY,
    handler TEXT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    run_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER,
    timeout INTEGER,
    expires_at INTEGER,
    unique_key TEXT,
    tags TEXT,
    parent TEXT,
    reason TEXT,
    progress INTEGER,
    note TEXT,
    outcome TEXT,
    session INTEGER,
    claim INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    started_at INTEGER,
    finished_at INTEGER,
    losses INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    cancel_asked INTEGER NOT NULL DEFAULT 0,
    fingerprint TEXT,
    params TEXT NOT NULL,
    result TEXT,
    error TEXT,
    batch TEXT,
    want TEXT,
    resource TEXT,
    member INTEGER,
    tried TEXT,
    rotations INTEGER NOT NULL DEFAULT 0,
    by_wall INTEGER,
    claim_lasts INTEGER,
    claim_expires_at INTEGER,
    claim_key TEXT,
    order_key TEXT,
    meta TEXT,
    partition TEXT,
    operation TEXT
);

-- Every index is partial: a task is in the index of the state that it is in, so that finished tasks cost a claim nothing.
CREATE INDEX pitboss_tasks_pending ON pitboss_tasks (queue, priority, id) WHERE state = 'pending';
CREATE INDEX pitboss_tasks_scheduled ON pitboss_tasks (queue, run_at) WHERE state = 'scheduled';
CREATE INDEX pitboss_tasks_running ON pitboss_tasks (session, id) WHERE state = 'running';
CREATE INDEX pitboss_tasks_held ON pitboss_tasks (handler, id) WHERE state = 'held';
CREATE INDEX pitboss_tasks_failed ON pitboss_tasks (fingerprint, handler, id, finished_at, state) WHERE state = 'failed';
CREATE INDEX pitboss_tasks_failed_by_id ON pitboss_tasks (id) WHERE state = 'failed';
CREATE INDEX pitboss_tasks_cancelled ON pitboss_tasks (id) WHERE state = 'cancelled';
CREATE INDEX pitboss_tasks_to_cancel ON pitboss_tasks (session) WHERE state = 'running' AND cancel_asked = 1;

-- Items of batches go with their batch, so the sweep that deletes old tasks need not read past them.
CREATE INDEX pitboss_tasks_finished ON pitboss_tasks (state, finished_at)
WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NULL;

-- Items that wait to be drawn, those of a batch by state, and those that have ended, for its speed.
CREATE INDEX pitboss_tasks_undrawn ON pitboss_tasks (batch, queue, priority, id) WHERE state = 'held' AND reason = 'batch';
CREATE INDEX pitboss_tasks_items ON pitboss_tasks (batch, state, id) WHERE batch IS NOT NULL;
CREATE INDEX pitboss_tasks_items_ended ON pitboss_tasks (batch, finished_at) WHERE batch IS NOT NULL AND finished_at IS NOT NULL;

CREATE INDEX pitboss_tasks_by_wall ON pitboss_tasks (by_wall) WHERE by_wall IS NOT NULL;

-- Claims with a time limit of their own, for the sweep, and those that may be asked for again.
CREATE INDEX pitboss_tasks_limited ON pitboss_tasks (claim_expires_at) WHERE state = 'running' AND claim_expires_at IS NOT NULL;
CREATE INDEX pitboss_tasks_repeatable ON pitboss_tasks (claim_key) WHERE state = 'running' AND claim_key IS NOT NULL;

-- Tasks that wait behind another one with their order key, and those that wait for their handler: a long line, or a large
-- batch, costs those that look for the others nothing.
CREATE INDEX pitboss_tasks_in_order ON pitboss_tasks (order_key, created_at, id) WHERE state = 'held' AND reason = 'order';
CREATE INDEX pitboss_tasks_unknown ON pitboss_tasks (handler, id) WHERE state = 'held' AND reason = 'handler';

-- Unfinished tasks by their key, items of batches that wait to be drawn, and those that have been. The first condition is
-- the one that tasks without a key fail.
CREATE INDEX pitboss_tasks_keyed ON pitboss_tasks (queue, state, partition, priority, id)
WHERE partition IS NOT NULL AND (state = 'held' OR state = 'scheduled' OR state = 'pending' OR state = 'running');
CREATE INDEX pitboss_tasks_keyed_undrawn ON pitboss_tasks (batch, queue, partition, priority, id)
WHERE partition IS NOT NULL AND state = 'held' AND reason = 'batch';
CREATE INDEX pitboss_tasks_keyed_items ON pitboss_tasks (batch, queue, state, partition)
WHERE partition IS NOT NULL AND batch IS NOT NULL AND state = 'pending';

-- Tasks that an operation retried and that failed again.
CREATE INDEX pitboss_tasks_failed_again ON pitboss_tasks (operation)
WHERE operation IS NOT NULL AND attempts > 0 AND state <> 'completed' AND state <> 'cancelled';

-- The unfinished task that is first in line for its order key.
CREATE TABLE pitboss_order_heads (
    key TEXT PRIMARY KEY,
    task TEXT NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX pitboss_order_heads_by_task ON pitboss_order_heads (task);

-- Runs that have ended without finishing their task.
CREATE TABLE pitboss_attempts (
    task TEXT NOT NULL,
    claim INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    session INTEGER,
    worker TEXT,
    error TEXT,
    PRIMARY KEY (task, claim)
) WITHOUT ROWID;

-- Which task has a unique key: while it is unfinished, or until a moment.
CREATE TABLE pitboss_uniques (
    key TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    until INTEGER
) WITHOUT ROWID;

-- `declared` and `limited` are JSON: what the app `app` declares, and what an operator set above it. `partition_by` is the
-- template of the key; NULL: the queue has no partitions. `partition_help` says of which keys of other slots a slot takes
-- tasks too: 'all', 'ownerless' or 'none'.
CREATE TABLE pitboss_queues (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    paused_by TEXT,
    paused_at INTEGER,
    capacity INTEGER,
    rate TEXT,
    declared TEXT,
    limited TEXT,
    app TEXT,
    partition_by TEXT,
    partition_help TEXT,
    max_per_key INTEGER,
    paused_reason TEXT
) WITHOUT ROWID;

CREATE INDEX pitboss_queues_capped ON pitboss_queues (name) WHERE max_per_key IS NOT NULL;

-- The keys of queues. Slots are named "pool/number".
CREATE TABLE pitboss_partitions (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    owner TEXT,
    moving_to TEXT,
    epoch INTEGER NOT NULL DEFAULT 0,
    pinned TEXT,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE UNIQUE INDEX pitboss_partitions_owned ON pitboss_partitions (queue, owner, key) WHERE moving_to IS NULL;
CREATE INDEX pitboss_partitions_moving ON pitboss_partitions (queue, key) WHERE moving_to IS NOT NULL;

-- The places of workers: `place` counts on a node, `number` over all nodes. `queues` is JSON; NULL: all.
CREATE TABLE pitboss_slots (
    pool TEXT NOT NULL,
    number INTEGER NOT NULL,
    node TEXT NOT NULL,
    place INTEGER NOT NULL,
    session INTEGER NOT NULL,
    queues TEXT,
    PRIMARY KEY (pool, number)
) WITHOUT ROWID;

CREATE INDEX pitboss_slots_by_session ON pitboss_slots (session);

-- How many tasks of a queue are in a state; every write keeps it exact, so reading it costs nothing.
CREATE TABLE pitboss_counts (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;

-- Starts of tasks of queues with a rate, as far back as their windows look; `n` started at the same moment.
CREATE TABLE pitboss_starts (
    queue TEXT NOT NULL,
    at INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, at)
) WITHOUT ROWID;

-- `remote`: its tasks are run by remote workers. `about` is JSON.
CREATE TABLE pitboss_handlers (
    name TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    policy TEXT NOT NULL,
    schema TEXT NOT NULL,
    resources TEXT,
    remote INTEGER NOT NULL DEFAULT 0,
    about TEXT NOT NULL DEFAULT '{}',
    number INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- The pool that a handler asks for; its queue is bound to that of its first handler, by name, that asks for one.
CREATE INDEX pitboss_handlers_bound ON pitboss_handlers (queue, name, resources) WHERE resources IS NOT NULL;

CREATE UNIQUE INDEX pitboss_handlers_by_number ON pitboss_handlers (number);

-- Whether all handlers of a queue are remote.
CREATE INDEX pitboss_handlers_by_queue ON pitboss_handlers (queue, remote);

-- Handlers whose `about` may name what follows a failure (model.failure.Routes).
CREATE INDEX pitboss_handlers_routed ON pitboss_handlers (name)
WHERE instr(about, '"fallback"') > 0 OR instr(about, '"dead_letters"') > 0;

-- AUTOINCREMENT, because the number of a forgotten session must never be given out again.
CREATE TABLE pitboss_sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    host TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    kind TEXT NOT NULL,
    handlers TEXT NOT NULL,
    ttl INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended INTEGER NOT NULL DEFAULT 0,
    snapshot TEXT
);

CREATE TABLE pitboss_wishes (
    key TEXT PRIMARY KEY,
    value TEXT,
    version INTEGER NOT NULL,
    wished_by TEXT
) WITHOUT ROWID;

CREATE INDEX pitboss_wishes_by_version ON pitboss_wishes (version);

-- Which session leads, and under which term. One row; `term` stays when no session leads, so that none is used twice.
-- `refusing` is why the leader lets no new tasks in.
CREATE TABLE pitboss_leader (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    term INTEGER NOT NULL,
    session INTEGER,
    refusing TEXT
);

INSERT INTO pitboss_leader (one, term) VALUES (1, 0);

-- `rules` are those that hold. `declared` and `limited` are JSON: what code declares, and what an operator set above it.
CREATE TABLE pitboss_pools (
    name TEXT PRIMARY KEY,
    rules TEXT NOT NULL,
    declared TEXT,
    limited TEXT
) WITHOUT ROWID;

-- Members. Claims read the columns; the rest is in two JSON texts: `record` changes with every use, `about` only when an
-- operator changes the member. AUTOINCREMENT: a member that was removed and added again is another one.
CREATE TABLE pitboss_resources (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    pool TEXT NOT NULL,
    name TEXT NOT NULL,
    stage TEXT NOT NULL,
    rank INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    in_use INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    blacklisted_until INTEGER NOT NULL,
    record TEXT NOT NULL,
    labels TEXT NOT NULL,
    about TEXT NOT NULL,
    UNIQUE (pool, name)
);

CREATE INDEX pitboss_resources_ready ON pitboss_resources (pool, rank, last_used_at, name) WHERE stage = 'ready';
CREATE INDEX pitboss_resources_away ON pitboss_resources (pool, available_at) WHERE stage = 'away';
CREATE INDEX pitboss_resources_blacklisted ON pitboss_resources (pool, blacklisted_until) WHERE blacklisted_until > 0;

-- When the newest uses of a member were, as many as its windows look at. `seq` counts the member's uses, so that the n-th
-- newest is found at once.
CREATE TABLE pitboss_uses (
    resource INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (resource, seq)
) WITHOUT ROWID;

-- What is remembered of removed members, by name, until limits count their uses no more.
CREATE TABLE pitboss_departed (
    pool TEXT NOT NULL,
    name TEXT NOT NULL,
    until INTEGER NOT NULL,
    kept TEXT NOT NULL,
    PRIMARY KEY (pool, name)
) WITHOUT ROWID;

CREATE INDEX pitboss_departed_by_end ON pitboss_departed (until);

-- Which member, by name, a key has, and for how long.
CREATE TABLE pitboss_bindings (
    pool TEXT NOT NULL,
    key TEXT NOT NULL,
    resource TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (pool, key)
) WITHOUT ROWID;

CREATE INDEX pitboss_bindings_by_end ON pitboss_bindings (until);

-- Which members, by name, failed on a destination since a use of it last succeeded.
CREATE TABLE pitboss_strikes (
    pool TEXT NOT NULL,
    destination TEXT NOT NULL,
    resource TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (pool, destination, resource)
) WITHOUT ROWID;

CREATE INDEX pitboss_strikes_by_time ON pitboss_strikes (at);

-- Leases without a task. `leased` is the answer that was given, as JSON.
CREATE TABLE pitboss_leases (
    name TEXT PRIMARY KEY,
    pool TEXT NOT NULL,
    member INTEGER NOT NULL,
    until INTEGER NOT NULL,
    leased TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX pitboss_leases_by_end ON pitboss_leases (until);

CREATE TABLE pitboss_batches (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    lane TEXT NOT NULL,
    status TEXT NOT NULL,
    rank INTEGER NOT NULL,
    made_by TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    reason TEXT,
    data TEXT NOT NULL,
    on_complete TEXT,
    run INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;

CREATE INDEX pitboss_batches_by_status ON pitboss_batches (status, lane, rank, id);
CREATE INDEX pitboss_batches_in_line ON pitboss_batches (lane, rank, id) WHERE finished_at IS NULL;
CREATE INDEX pitboss_batches_ended ON pitboss_batches (finished_at, id) WHERE finished_at IS NOT NULL;

-- How many items of a batch are in a state, by queue; exact, like the counts of the queues.
CREATE TABLE pitboss_batch_counts (
    batch TEXT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (batch, queue, state)
) WITHOUT ROWID;

CREATE TABLE pitboss_lanes (
    name TEXT PRIMARY KEY,
    max_running INTEGER NOT NULL
) WITHOUT ROWID;

-- Keys of the HTTP API. `roles` is JSON; of the secret there is only a digest.
CREATE TABLE pitboss_api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    roles TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT,
    revoked_at INTEGER
) WITHOUT ROWID;

-- Requests that may be repeated: a digest of the body, and the ids that were given, as JSON.
CREATE TABLE pitboss_requests (
    key TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    ids TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX pitboss_requests_by_time ON pitboss_requests (at);

-- What each app declares, as JSON. All fingerprints that it ever had, and that of each session that declared.
CREATE TABLE pitboss_apps (
    name TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    queues TEXT NOT NULL,
    subscriptions TEXT NOT NULL,
    events TEXT NOT NULL
);

CREATE TABLE pitboss_fingerprints (
    app TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    PRIMARY KEY (app, fingerprint)
) WITHOUT ROWID;

CREATE TABLE pitboss_declarers (
    app TEXT NOT NULL,
    session INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    PRIMARY KEY (app, session)
) WITHOUT ROWID;

-- `body` is the whole model.schedule.Schedule as JSON; the columns repeat what statements look for. `next_at` is a time of
-- the wall clock.
CREATE TABLE pitboss_schedules (
    name TEXT PRIMARY KEY,
    app TEXT,
    next_at INTEGER,
    paused INTEGER NOT NULL,
    version INTEGER NOT NULL,
    withdrawn INTEGER NOT NULL,
    body TEXT NOT NULL
);

CREATE INDEX pitboss_schedules_due ON pitboss_schedules (next_at, name) WHERE paused = 0 AND next_at IS NOT NULL;
CREATE INDEX pitboss_schedules_by_app ON pitboss_schedules (app) WHERE app IS NOT NULL;

-- Ids grow with time. `handlers` are those that it went to, as JSON.
CREATE TABLE pitboss_events (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    key TEXT,
    published_by TEXT,
    published_at INTEGER NOT NULL,
    handlers TEXT NOT NULL
);

CREATE INDEX pitboss_events_by_name ON pitboss_events (name, id);
CREATE INDEX pitboss_events_by_time ON pitboss_events (published_at);

-- What the leader knows of alerts: one row, from its first look on. Until when operators want to hear nothing of a rule.
CREATE TABLE pitboss_alert_notes (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);

CREATE TABLE pitboss_silences (
    rule TEXT PRIMARY KEY,
    until INTEGER NOT NULL,
    at INTEGER NOT NULL,
    silenced_by TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;

-- The store's clock is the uptime of the host plus `offset`, which is chosen once for each boot, so that no moment comes
-- twice: `latest` is about a second behind the latest moment that was written. `ahead` is how far the wall clock was
-- ahead when it was last set; tasks with `by_wall` have moments that were made with it.
CREATE TABLE pitboss_clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL,
    offset INTEGER NOT NULL,
    ahead INTEGER NOT NULL,
    latest INTEGER NOT NULL
);

-- Tasks for people and for views of their own: these columns stay, whatever becomes of the tables. A migration that changes
-- the table of tasks drops the view and makes it again. Times are UTC; `params`, `result` and `error` are JSON.
CREATE VIEW pitboss_task_view AS
SELECT
    id, handler, queue, partition, batch, state, reason, priority, params, result, error, attempts, losses, progress, note,
    worker, resource, unique_key, parent,
    strftime('%Y-%m-%d %H:%M:%f', (created_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%d %H:%M:%f', (run_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS run_at,
    strftime('%Y-%m-%d %H:%M:%f', (started_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%d %H:%M:%f', (finished_at + (SELECT ahead FROM pitboss_clock)) / 1e6, 'unixepoch') AS finished_at
FROM pitboss_tasks;

-- `desired`: the newest version of a wish, also after wishes are gone. `schema`: the last migration applied.
CREATE TABLE pitboss_meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO pitboss_meta (name, value) VALUES ('desired', 0), ('schema', 16);
