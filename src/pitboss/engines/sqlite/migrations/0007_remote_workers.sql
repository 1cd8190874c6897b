-- Claims of remote workers, which live by a time limit of their own; task types; and the access to the HTTP API.

-- How long the last claim lasts, until when, and the key under which it is given again.
ALTER TABLE pitboss_tasks ADD COLUMN claim_lasts INTEGER;
ALTER TABLE pitboss_tasks ADD COLUMN claim_expires_at INTEGER;
ALTER TABLE pitboss_tasks ADD COLUMN claim_key TEXT;

-- Claims with a time limit of their own, for the sweep, and those that may be asked for again.
CREATE INDEX pitboss_tasks_limited ON pitboss_tasks (claim_expires_at) WHERE state = 'running' AND claim_expires_at IS NOT NULL;
CREATE INDEX pitboss_tasks_repeatable ON pitboss_tasks (claim_key) WHERE state = 'running' AND claim_key IS NOT NULL;

-- `remote`: its tasks are run by remote workers. `about` is JSON. The handlers that are there get numbers by their names.
ALTER TABLE pitboss_handlers ADD COLUMN remote INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pitboss_handlers ADD COLUMN about TEXT NOT NULL DEFAULT '{}';
ALTER TABLE pitboss_handlers ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pitboss_handlers ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pitboss_handlers ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;

-- The clock's `latest` is about when the store was last written: when these handlers came is not known.
UPDATE pitboss_handlers
SET
    number = (SELECT count(*) FROM pitboss_handlers AS other WHERE other.name <= pitboss_handlers.name),
    created_at = coalesce((SELECT latest FROM pitboss_clock), 0),
    updated_at = coalesce((SELECT latest FROM pitboss_clock), 0);

CREATE UNIQUE INDEX pitboss_handlers_by_number ON pitboss_handlers (number);

-- Whether all handlers of a queue are remote.
CREATE INDEX pitboss_handlers_by_queue ON pitboss_handlers (queue, remote);

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

-- What operators did. Ids grow with time.
CREATE TABLE pitboss_audit (
    id TEXT PRIMARY KEY,
    who TEXT NOT NULL,
    act TEXT NOT NULL,
    target TEXT NOT NULL,
    details TEXT NOT NULL,
    source TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

-- Requests that may be repeated: a digest of the body, and the ids that were given, as JSON.
CREATE TABLE pitboss_requests (
    key TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    ids TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX pitboss_requests_by_time ON pitboss_requests (at);
