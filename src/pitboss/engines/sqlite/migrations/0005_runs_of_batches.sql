-- How often a batch was run: an ended batch that is queued again gets the next number.
ALTER TABLE pitboss_batches ADD COLUMN run INTEGER NOT NULL DEFAULT 1;
