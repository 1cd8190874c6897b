-- Figures over time.

-- What happened to tasks, in buckets of `span` that begin at `at`. The bucket of 10 s is added to by every act; the leader
-- rolls it up into longer ones.
CREATE TABLE pitboss_flows (
    span INTEGER NOT NULL,
    at INTEGER NOT NULL,
    queue TEXT NOT NULL,
    handler TEXT NOT NULL,
    put INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    retried INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    revived INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (span, at, queue, handler)
) WITHOUT ROWID;

-- What managers measured, as JSON (model.figures.Sample). `session` 0: rolled up.
CREATE TABLE pitboss_samples (
    span INTEGER NOT NULL,
    at INTEGER NOT NULL,
    session INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (span, at, session)
);
