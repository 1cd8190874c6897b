ALTER TABLE pitboss_queues ADD COLUMN paused_reason TEXT;
