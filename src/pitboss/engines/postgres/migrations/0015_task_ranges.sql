-- Indexes by which tasks are listed and counted, so that reading does not grow with what is stored.
DROP INDEX {schema}.tasks_failed, {schema}.tasks_finished;

CREATE INDEX tasks_failed ON {schema}.tasks (fingerprint, handler, id, finished_at) WHERE state = 'failed';
CREATE INDEX tasks_finished ON {schema}.tasks (state, finished_at)
    WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NULL;
CREATE INDEX tasks_items ON {schema}.tasks (batch, state, id)
    WHERE batch IS NOT NULL AND state NOT IN ('pending', 'scheduled', 'running');
CREATE INDEX tasks_items_finished ON {schema}.tasks (state, finished_at)
    WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NOT NULL;

CREATE INDEX tasks_by_queue ON {schema}.tasks (queue, state, id) WHERE state NOT IN ('pending', 'running');
CREATE INDEX tasks_by_resource ON {schema}.tasks (resource, state, id) WHERE resource IS NOT NULL;
CREATE INDEX tasks_by_partition ON {schema}.tasks (partition, state, id)
    WHERE partition IS NOT NULL AND state NOT IN ('pending', 'running');
