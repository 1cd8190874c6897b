-- For lists by id (engines.ranges). Pending and running tasks are listed by the indexes of claims.
CREATE INDEX pitboss_tasks_by_queue ON pitboss_tasks (queue, state, id) WHERE state NOT IN ('pending', 'running');
CREATE INDEX pitboss_tasks_by_resource ON pitboss_tasks (resource, state, id) WHERE resource IS NOT NULL;
CREATE INDEX pitboss_tasks_by_partition ON pitboss_tasks (partition, state, id)
WHERE partition IS NOT NULL AND state NOT IN ('pending', 'running');
CREATE INDEX pitboss_tasks_items_finished ON pitboss_tasks (state, finished_at)
WHERE state IN ('completed', 'failed', 'cancelled') AND batch IS NOT NULL;
