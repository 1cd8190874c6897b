-- Claims of remote workers, which live by a time limit of their own; task types; and the access to the HTTP API.
ALTER TABLE {schema}.tasks
    ADD COLUMN claim_lasts bigint,
    ADD COLUMN claim_expires_at bigint,
    ADD COLUMN claim_key text;

-- A sweep of dead sessions passes by none of their claims with a time limit of their own.
DROP INDEX {schema}.tasks_running;
CREATE INDEX tasks_running ON {schema}.tasks (session, claim_expires_at, id) WHERE state = 'running';
CREATE INDEX tasks_limited ON {schema}.tasks (claim_expires_at)
    WHERE claim_expires_at IS NOT NULL AND state = 'running';
CREATE INDEX tasks_repeatable ON {schema}.tasks (claim_key) WHERE claim_key IS NOT NULL AND state = 'running';

ALTER TABLE {schema}.handlers
    ADD COLUMN remote boolean NOT NULL DEFAULT false,
    ADD COLUMN about text NOT NULL DEFAULT '{}',
    ADD COLUMN number bigint,
    ADD COLUMN created_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN updated_at bigint NOT NULL DEFAULT 0;

-- When the handlers that are there came is not known.
UPDATE {schema}.handlers AS h SET number = n.number, created_at = n.now, updated_at = n.now
FROM (
    SELECT name, row_number() OVER (ORDER BY name COLLATE "C") AS number,
        (SELECT {schema}.steady_now(shift, NULL) FROM {schema}.clock WHERE one) AS now
    FROM {schema}.handlers
) AS n WHERE h.name = n.name;

ALTER TABLE {schema}.handlers ALTER COLUMN number SET NOT NULL;
CREATE UNIQUE INDEX handlers_by_number ON {schema}.handlers (number);
CREATE INDEX handlers_by_queue ON {schema}.handlers (remote, queue);

CREATE TABLE {schema}.api_keys (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    digest text NOT NULL,
    roles text[] NOT NULL,
    created_at bigint NOT NULL,
    created_by text,
    revoked_at bigint
);

CREATE UNIQUE INDEX api_keys_by_name ON {schema}.api_keys (name) WHERE revoked_at IS NULL;

CREATE TABLE {schema}.audit (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL,
    who text NOT NULL,
    act text NOT NULL,
    target text NOT NULL,
    details text NOT NULL,
    source text NOT NULL
);

CREATE TABLE {schema}.requests (
    key text PRIMARY KEY,
    at bigint NOT NULL,
    body text NOT NULL,
    ids text[] NOT NULL
);

CREATE INDEX requests_by_time ON {schema}.requests (at);
