-- The rules of a pool apart by who set them. What stood in the store counts as declared.
ALTER TABLE {schema}.pools ADD COLUMN declared text, ADD COLUMN limited text;
UPDATE {schema}.pools SET declared = '{"rules":' || rules || '}';

-- What is remembered of removed members, by name, until limits count their uses no more.
CREATE TABLE {schema}.departed (
    pool text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    until bigint NOT NULL,
    kept text NOT NULL,
    PRIMARY KEY (pool, name)
);

CREATE INDEX departed_by_end ON {schema}.departed (until);
