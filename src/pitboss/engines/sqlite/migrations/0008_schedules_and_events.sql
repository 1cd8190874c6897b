-- What apps declare: queues, schedules and subscriptions; events; order keys, and where a task comes from.

-- Tasks with one order key run one at a time. `meta` is JSON.
ALTER TABLE pitboss_tasks ADD COLUMN order_key TEXT;
ALTER TABLE pitboss_tasks ADD COLUMN meta TEXT;

-- Tasks that wait behind another one with their order key, and those that wait for their handler: a long line, or a large
-- batch, costs those that look for the others nothing.
CREATE INDEX pitboss_tasks_in_order ON pitboss_tasks (order_key, created_at, id) WHERE state = 'held' AND reason = 'order';
CREATE INDEX pitboss_tasks_unknown ON pitboss_tasks (handler, id) WHERE state = 'held' AND reason = 'handler';

-- The unfinished task that is first in line for its order key.
CREATE TABLE pitboss_order_heads (
    key TEXT PRIMARY KEY,
    task TEXT NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX pitboss_order_heads_by_task ON pitboss_order_heads (task);

-- Handlers whose `about` may name what follows a failure (model.failure.Routes).
CREATE INDEX pitboss_handlers_routed ON pitboss_handlers (name)
WHERE instr(about, '"fallback"') > 0 OR instr(about, '"dead_letters"') > 0;

-- `declared` and `limited` are JSON: what the app `app` declares, and what an operator set above it. What is set in a
-- store without declarations was set by an operator.
ALTER TABLE pitboss_queues ADD COLUMN declared TEXT;
ALTER TABLE pitboss_queues ADD COLUMN limited TEXT;
ALTER TABLE pitboss_queues ADD COLUMN app TEXT;

UPDATE pitboss_queues
SET
    limited = CASE
        WHEN rate IS NULL THEN '["capacity"]'
        WHEN capacity IS NULL THEN '["rate"]'
        ELSE '["capacity","rate"]'
    END
WHERE capacity IS NOT NULL OR rate IS NOT NULL;

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

-- Why the leader lets no new tasks in.
ALTER TABLE pitboss_leader ADD COLUMN refusing TEXT;
