-- The first schema: tasks, their history, queues, handlers, sessions and wishes.

-- One row per task, with the columns of model.task.Task. `tags` is NULL when there are none, and `fingerprint` repeats
-- that of the error, for grouping. The run that finished a task is in its own row; earlier runs are in `attempts`.
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
    error TEXT
);

-- Every index is partial: a task is in the index of the state that it is in, so that finished tasks cost a claim nothing.
CREATE INDEX pitboss_tasks_pending ON pitboss_tasks (queue, priority, id) WHERE state = 'pending';
CREATE INDEX pitboss_tasks_scheduled ON pitboss_tasks (queue, run_at) WHERE state = 'scheduled';
CREATE INDEX pitboss_tasks_running ON pitboss_tasks (session, id) WHERE state = 'running';
CREATE INDEX pitboss_tasks_held ON pitboss_tasks (handler, id) WHERE state = 'held';
CREATE INDEX pitboss_tasks_finished ON pitboss_tasks (finished_at) WHERE state IN ('completed', 'failed', 'cancelled');
CREATE INDEX pitboss_tasks_failed ON pitboss_tasks (fingerprint, id) WHERE state = 'failed';
CREATE INDEX pitboss_tasks_cancelled ON pitboss_tasks (id) WHERE state = 'cancelled';
CREATE INDEX pitboss_tasks_to_cancel ON pitboss_tasks (session) WHERE state = 'running' AND cancel_asked = 1;

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

CREATE TABLE pitboss_queues (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    paused_by TEXT,
    paused_at INTEGER,
    capacity INTEGER,
    rate TEXT
) WITHOUT ROWID;

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

CREATE TABLE pitboss_handlers (
    name TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    policy TEXT NOT NULL,
    schema TEXT NOT NULL
) WITHOUT ROWID;

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

-- `desired`: the newest version of a wish, also after wishes are gone.
CREATE TABLE pitboss_meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO pitboss_meta (name, value) VALUES ('desired', 0);
