-- Indexes by which tasks are listed and counted, so that reading does not grow with what is stored.
DROP INDEX pitboss_tasks_finished;
DROP INDEX pitboss_tasks_failed;

CREATE INDEX pitboss_tasks_failed ON pitboss_tasks (fingerprint, handler, id, finished_at, state) WHERE state = 'failed';
CREATE INDEX pitboss_tasks_finished ON pitboss_tasks (state, finished_at)
WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NULL;
CREATE INDEX pitboss_tasks_items_finished ON pitboss_tasks (state, finished_at)
WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NOT NULL;

CREATE INDEX pitboss_tasks_by_queue ON pitboss_tasks (queue, state, id) WHERE state NOT IN ('pending', 'running');
CREATE INDEX pitboss_tasks_by_resource ON pitboss_tasks (resource, state, id) WHERE resource IS NOT NULL;
CREATE INDEX pitboss_tasks_by_partition ON pitboss_tasks (partition, state, id)
WHERE partition IS NOT NULL AND state NOT IN ('pending', 'running');
