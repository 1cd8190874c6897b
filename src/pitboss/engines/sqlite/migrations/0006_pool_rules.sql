-- The rules of a pool apart by who set them. What stood in the store counts as declared.
ALTER TABLE pitboss_pools ADD COLUMN declared TEXT;
ALTER TABLE pitboss_pools ADD COLUMN limited TEXT;
UPDATE pitboss_pools SET declared = json_object('rules', json(rules));

-- What is remembered of removed members, by name, until limits count their uses no more.
CREATE TABLE pitboss_departed (
    pool TEXT NOT NULL,
    name TEXT NOT NULL,
    until INTEGER NOT NULL,
    kept TEXT NOT NULL,
    PRIMARY KEY (pool, name)
) WITHOUT ROWID;

CREATE INDEX pitboss_departed_by_end ON pitboss_departed (until);
