-- The schema of a fresh store. The migrations, one after the other, lead to exactly this (a test proves it).
-- Times are whole microseconds since the epoch. JSON is canonical text.

-- One row per task, with the columns of model.task.Task. `tags` is NULL when there are none, and `fingerprint` repeats
-- what the error says, for grouping. The run that finished a task stands in its own row; earlier runs in `attempts`.
CREATE TABLE tasks (
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
CREATE INDEX tasks_pending ON tasks (queue, priority, id) WHERE state = 'pending';
CREATE INDEX tasks_scheduled ON tasks (queue, run_at) WHERE state = 'scheduled';
CREATE INDEX tasks_running ON tasks (session, id) WHERE state = 'running';
CREATE INDEX tasks_held ON tasks (handler, id) WHERE state = 'held';
CREATE INDEX tasks_finished ON tasks (finished_at) WHERE state IN ('completed', 'failed', 'cancelled');
CREATE INDEX tasks_failed ON tasks (fingerprint, id) WHERE state = 'failed';
CREATE INDEX tasks_cancelled ON tasks (id) WHERE state = 'cancelled';
CREATE INDEX tasks_to_cancel ON tasks (session) WHERE state = 'running' AND cancel_asked = 1;

-- Runs that have ended without finishing their task.
CREATE TABLE attempts (
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
CREATE TABLE uniques (
    key TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    until INTEGER
) WITHOUT ROWID;

CREATE TABLE queues (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    paused_by TEXT,
    paused_at INTEGER,
    capacity INTEGER,
    rate TEXT
) WITHOUT ROWID;

-- How many tasks of a queue are in a state; every write keeps it exact, so reading it costs nothing.
CREATE TABLE counts (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;

-- Starts of tasks of queues with a rate, as far back as their windows look; `n` started at the same moment.
CREATE TABLE starts (
    queue TEXT NOT NULL,
    at INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, at)
) WITHOUT ROWID;

CREATE TABLE handlers (
    name TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    policy TEXT NOT NULL,
    schema TEXT NOT NULL
) WITHOUT ROWID;

-- AUTOINCREMENT, because the number of a forgotten session must never be given out again.
CREATE TABLE sessions (
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

CREATE TABLE wishes (
    key TEXT PRIMARY KEY,
    value TEXT,
    version INTEGER NOT NULL,
    wished_by TEXT
) WITHOUT ROWID;

CREATE INDEX wishes_by_version ON wishes (version);

-- `desired`: the newest version of a wish, also after wishes are gone.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('desired', 0);
