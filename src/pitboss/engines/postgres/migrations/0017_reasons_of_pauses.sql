ALTER TABLE {schema}.queues ADD COLUMN paused_reason text;
