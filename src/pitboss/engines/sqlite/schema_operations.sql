-- `body` is the whole model.operation.Operation as JSON; the columns repeat what statements look for.
CREATE TABLE pitboss_operations (
    id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    ended_at INTEGER,
    body TEXT NOT NULL
);

CREATE INDEX pitboss_operations_by_status ON pitboss_operations (status, id);
