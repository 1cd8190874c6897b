-- Operations. `body` is the whole model.operation.Operation as JSON; the columns repeat what statements look for.
CREATE TABLE {schema}.operations (
    id text COLLATE "C" PRIMARY KEY,
    status text NOT NULL,
    ended_at bigint,
    body text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE INDEX operations_by_status ON {schema}.operations (status, id);

-- The operation that last retried a task; the index has those that failed again.
ALTER TABLE {schema}.tasks ADD COLUMN operation text COLLATE "C";

CREATE INDEX tasks_failed_again ON {schema}.tasks (operation)
    WHERE operation IS NOT NULL AND attempts > 0 AND state <> 'completed' AND state <> 'cancelled';

-- An operation walks through failed and cancelled tasks by id.
CREATE INDEX tasks_failed_by_id ON {schema}.tasks (id) WHERE state = 'failed';
CREATE INDEX tasks_cancelled_by_id ON {schema}.tasks (id) WHERE state = 'cancelled';
