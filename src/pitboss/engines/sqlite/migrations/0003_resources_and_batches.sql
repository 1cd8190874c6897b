-- Scarce things that tasks hold while they run, and tasks that start and end together.

-- `member` is the number of what a running task holds; `resource` says its name, and stays. `want` and `tried` are JSON.
ALTER TABLE pitboss_tasks ADD COLUMN batch TEXT;
ALTER TABLE pitboss_tasks ADD COLUMN want TEXT;
ALTER TABLE pitboss_tasks ADD COLUMN resource TEXT;
ALTER TABLE pitboss_tasks ADD COLUMN member INTEGER;
ALTER TABLE pitboss_tasks ADD COLUMN tried TEXT;
ALTER TABLE pitboss_tasks ADD COLUMN rotations INTEGER NOT NULL DEFAULT 0;

-- Items of batches go with their batch, so the sweep that deletes old tasks need not read past them.
DROP INDEX pitboss_tasks_finished;

CREATE INDEX pitboss_tasks_finished ON pitboss_tasks (finished_at)
WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NULL;

-- Items that wait to be drawn, those of a batch by state, and those that have ended, for its speed.
CREATE INDEX pitboss_tasks_undrawn ON pitboss_tasks (batch, queue, priority, id) WHERE state = 'held' AND reason = 'batch';
CREATE INDEX pitboss_tasks_items ON pitboss_tasks (batch, state, id) WHERE batch IS NOT NULL;
CREATE INDEX pitboss_tasks_items_ended ON pitboss_tasks (batch, finished_at) WHERE batch IS NOT NULL AND finished_at IS NOT NULL;

-- The pool that a handler asks for; its queue is bound to that of its first handler, by name, that asks for one.
ALTER TABLE pitboss_handlers ADD COLUMN resources TEXT;

CREATE INDEX pitboss_handlers_bound ON pitboss_handlers (queue, name, resources) WHERE resources IS NOT NULL;

CREATE TABLE pitboss_pools (
    name TEXT PRIMARY KEY,
    rules TEXT NOT NULL
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
    on_complete TEXT
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
