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

-- What happened. Ids grow with time.
CREATE TABLE pitboss_happenings (
    id TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    subject TEXT NOT NULL,
    text TEXT NOT NULL,
    host TEXT NOT NULL,
    manager INTEGER NOT NULL,
    details TEXT NOT NULL,
    count INTEGER NOT NULL
) WITHOUT ROWID;
