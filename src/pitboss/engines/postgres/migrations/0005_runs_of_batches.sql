-- How often a batch was run: an ended batch that is queued again gets the next number.
ALTER TABLE {schema}.batches ADD COLUMN run bigint NOT NULL DEFAULT 1;
