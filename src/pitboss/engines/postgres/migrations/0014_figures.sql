-- Figures over time.

-- A change with a batch counts for its queue and for the batch. One with a handler counts in the flows too, as a task that
-- came to this state, if that is an end, and by what became of its run (`run`), in the bucket of `at`.
ALTER TABLE {schema}.count_deltas ADD COLUMN handler text;
ALTER TABLE {schema}.count_deltas ADD COLUMN run text;
ALTER TABLE {schema}.count_deltas ADD COLUMN at bigint;

-- What happened to tasks, in buckets of `span` that begin at `at`. Folded from the changes of counts; the leader rolls it up
-- into longer buckets.
CREATE TABLE {schema}.flows (
    span bigint NOT NULL,
    at bigint NOT NULL,
    put bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    retried bigint NOT NULL,
    lost bigint NOT NULL,
    revived bigint NOT NULL,
    queue text NOT NULL,
    handler text NOT NULL,
    PRIMARY KEY (span, at, queue, handler)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- What managers measured, as JSON (model.figures.Sample). `session` 0: rolled up.
CREATE TABLE {schema}.samples (
    span bigint NOT NULL,
    at bigint NOT NULL,
    session bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (span, at, session)
);
