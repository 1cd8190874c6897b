ALTER TABLE pitboss_tasks ADD COLUMN by_wall INTEGER;

CREATE INDEX pitboss_tasks_by_wall ON pitboss_tasks (by_wall) WHERE by_wall IS NOT NULL;

CREATE TABLE pitboss_clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL,
    offset INTEGER NOT NULL,
    ahead INTEGER NOT NULL,
    latest INTEGER NOT NULL
);
