-- Partitions: the keys of tasks, who owns them, and the slots of workers.
ALTER TABLE {schema}.tasks ADD COLUMN partition text COLLATE "C";

CREATE INDEX tasks_keyed_pending ON {schema}.tasks (queue, partition, priority, id)
    WHERE partition IS NOT NULL AND state = 'pending';
CREATE INDEX tasks_keyed_running ON {schema}.tasks (queue, partition)
    WHERE partition IS NOT NULL AND state = 'running';
CREATE INDEX tasks_keyed_scheduled ON {schema}.tasks (queue, partition)
    WHERE partition IS NOT NULL AND state = 'scheduled';
CREATE INDEX tasks_keyed_held ON {schema}.tasks (queue, partition, batch, reason, priority, id)
    WHERE partition IS NOT NULL AND state = 'held';

ALTER TABLE {schema}.queues
    ADD COLUMN key_texts text[],
    ADD COLUMN key_names text[],
    ADD COLUMN helped text,
    ADD COLUMN max_per_key bigint;

CREATE FUNCTION {schema}.partition_key(texts text[], names text[], params text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    given json := params::json;
    made text := '';
BEGIN
    FOR part IN 1 .. cardinality(texts) LOOP
        made := made || texts[part];
        CONTINUE WHEN names[part] IS NULL;
        IF json_typeof(given -> names[part]) IN ('string', 'number', 'boolean') THEN
            made := made || (given ->> names[part]);
        ELSE
            RETURN NULL;
        END IF;
    END LOOP;
    RETURN nullif(left(made, 200), '');
END $$;

CREATE TABLE {schema}.partitions (
    queue text NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner text COLLATE "C",
    moving_to text,
    epoch bigint NOT NULL DEFAULT 0,
    pinned text,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE INDEX partitions_by_owner ON {schema}.partitions (owner, queue, key)
    WHERE owner IS NOT NULL AND moving_to IS NULL;
CREATE INDEX partitions_moving ON {schema}.partitions (queue, key) WHERE moving_to IS NOT NULL;

CREATE TABLE {schema}.new_partitions (
    queue text NOT NULL,
    key text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE INDEX new_partitions_by_key ON {schema}.new_partitions (queue, key);

CREATE FUNCTION {schema}.knows_key(its_queue text, its_key text) RETURNS boolean LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN EXISTS (SELECT FROM {schema}.partitions WHERE queue = its_queue COLLATE "default" AND key = its_key)
        OR EXISTS (SELECT FROM {schema}.new_partitions WHERE queue = its_queue COLLATE "default" AND key = its_key);
END $$;

CREATE TABLE {schema}.slots (
    number bigint NOT NULL,
    place bigint NOT NULL,
    session bigint NOT NULL,
    pool text COLLATE "C" NOT NULL,
    node text NOT NULL,
    queues text[],
    PRIMARY KEY (pool, number)
);
