-- `body` is the whole model.operation.Operation as JSON.
CREATE TABLE {schema}.operations (
    id text COLLATE "C" PRIMARY KEY,
    status text NOT NULL,
    ended_at bigint,
    body text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE INDEX operations_by_status ON {schema}.operations (status, id);
