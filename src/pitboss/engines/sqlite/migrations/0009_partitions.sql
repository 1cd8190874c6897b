-- Partitions: keys of tasks, slots of workers, and which slot owns which key.

ALTER TABLE pitboss_tasks ADD COLUMN partition TEXT;

-- `partition_by` is the template of the key; NULL: the queue has no partitions. `partition_help` says of which keys of other
-- slots a slot takes tasks too: 'all', 'ownerless' or 'none'.
ALTER TABLE pitboss_queues ADD COLUMN partition_by TEXT;
ALTER TABLE pitboss_queues ADD COLUMN partition_help TEXT;
ALTER TABLE pitboss_queues ADD COLUMN max_per_key INTEGER;

CREATE INDEX pitboss_queues_capped ON pitboss_queues (name) WHERE max_per_key IS NOT NULL;

-- Unfinished tasks by their key, items of batches that wait to be drawn, and those that have been. The first condition is
-- the one that tasks without a key fail.
CREATE INDEX pitboss_tasks_keyed ON pitboss_tasks (queue, state, partition, priority, id)
WHERE partition IS NOT NULL AND (state = 'held' OR state = 'scheduled' OR state = 'pending' OR state = 'running');
CREATE INDEX pitboss_tasks_keyed_undrawn ON pitboss_tasks (batch, queue, partition, priority, id)
WHERE partition IS NOT NULL AND state = 'held' AND reason = 'batch';
CREATE INDEX pitboss_tasks_keyed_items ON pitboss_tasks (batch, queue, state, partition)
WHERE partition IS NOT NULL AND batch IS NOT NULL AND state = 'pending';

-- The keys of queues. Slots are named "pool/number".
CREATE TABLE pitboss_partitions (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    owner TEXT,
    moving_to TEXT,
    epoch INTEGER NOT NULL DEFAULT 0,
    pinned TEXT,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE UNIQUE INDEX pitboss_partitions_owned ON pitboss_partitions (queue, owner, key) WHERE moving_to IS NULL;
CREATE INDEX pitboss_partitions_moving ON pitboss_partitions (queue, key) WHERE moving_to IS NOT NULL;

-- The places of workers: `place` counts on a node, `number` over all nodes. `queues` is JSON; NULL: all.
CREATE TABLE pitboss_slots (
    pool TEXT NOT NULL,
    number INTEGER NOT NULL,
    node TEXT NOT NULL,
    place INTEGER NOT NULL,
    session INTEGER NOT NULL,
    queues TEXT,
    PRIMARY KEY (pool, number)
) WITHOUT ROWID;

CREATE INDEX pitboss_slots_by_session ON pitboss_slots (session);
