-- Operations. `body` is the whole model.operation.Operation as JSON; the columns repeat what statements look for.
CREATE TABLE pitboss_operations (
    id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    ended_at INTEGER,
    body TEXT NOT NULL
);

CREATE INDEX pitboss_operations_by_status ON pitboss_operations (status, id);

-- `operation` is the one that last retried the task; the index has those that failed again.
ALTER TABLE pitboss_tasks ADD COLUMN operation TEXT;

CREATE INDEX pitboss_tasks_failed_again ON pitboss_tasks (operation)
WHERE operation IS NOT NULL AND attempts > 0 AND state <> 'completed' AND state <> 'cancelled';

-- An operation walks through failed tasks by id.
CREATE INDEX pitboss_tasks_failed_by_id ON pitboss_tasks (id) WHERE state = 'failed';
