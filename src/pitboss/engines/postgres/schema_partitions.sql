-- The keys of queues, and the slots that own them ("POOL/NUMBER"). Changed only by transactions that have locked the
-- queue, as claims do.
CREATE TABLE {schema}.partitions (
    queue text NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner text COLLATE "C",
    moving_to text,
    epoch bigint NOT NULL DEFAULT 0,
    pinned text,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Not for all keys, so that no lookup of a key takes it, whatever statistics say.
CREATE INDEX partitions_by_owner ON {schema}.partitions (owner, queue, key)
    WHERE owner IS NOT NULL AND moving_to IS NULL;
CREATE INDEX partitions_moving ON {schema}.partitions (queue, key) WHERE moving_to IS NOT NULL;

-- Keys that puts have met. They are appended, so that no put waits for another one; a sweep moves them to `partitions`.
CREATE TABLE {schema}.new_partitions (
    queue text NOT NULL,
    key text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE INDEX new_partitions_by_key ON {schema}.new_partitions (queue, key);

-- Whether a put has met the key before; NULL if there is none. Without the collation, that of the key would count for
-- the queue too, and the indexes could not be used.
CREATE FUNCTION {schema}.knows_key(its_queue text, its_key text) RETURNS boolean LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN EXISTS (SELECT FROM {schema}.partitions WHERE queue = its_queue COLLATE "default" AND key = its_key)
        OR EXISTS (SELECT FROM {schema}.new_partitions WHERE queue = its_queue COLLATE "default" AND key = its_key);
END $$;

-- The places of workers (`model.pool_slot`). Changed under one lock for each pool.
CREATE TABLE {schema}.slots (
    number bigint NOT NULL,
    place bigint NOT NULL,
    session bigint NOT NULL,
    pool text COLLATE "C" NOT NULL,
    node text NOT NULL,
    queues text[],
    PRIMARY KEY (pool, number)
);
