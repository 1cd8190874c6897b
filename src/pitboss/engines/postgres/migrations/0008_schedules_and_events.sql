-- Order keys, what apps declare, schedules, events, and what follows a failure.
ALTER TABLE {schema}.tasks
    ADD COLUMN order_key text COLLATE "C",
    ADD COLUMN meta text;

CREATE INDEX tasks_in_order ON {schema}.tasks (order_key, created_at, id) WHERE state = 'held' AND reason = 'order';

CREATE TABLE {schema}.order_heads (
    key text COLLATE "C" PRIMARY KEY,
    task uuid NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- No handler that is there has a fallback, or gets dead letters.
ALTER TABLE {schema}.handlers ADD COLUMN routed boolean NOT NULL DEFAULT false;
CREATE INDEX handlers_routed ON {schema}.handlers (name) WHERE routed;

ALTER TABLE {schema}.queues
    ADD COLUMN declared text,
    ADD COLUMN declared_by text,
    ADD COLUMN limited text[] NOT NULL DEFAULT '{}';

-- Until now only operators could limit a queue.
UPDATE {schema}.queues SET limited = array_remove(ARRAY[
    CASE WHEN capacity IS NOT NULL THEN 'capacity' END, CASE WHEN rate_counts IS NOT NULL THEN 'rate' END
], NULL) WHERE capacity IS NOT NULL OR rate_counts IS NOT NULL;

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

-- Why the leader lets no new tasks in.
ALTER TABLE {schema}.leader ADD COLUMN refusing text;
