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
