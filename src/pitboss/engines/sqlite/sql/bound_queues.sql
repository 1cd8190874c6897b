-- Each queue with the pool of the first of its handlers, by name; SQLite takes `resources` from the row of the minimum.
SELECT queue, resources, min(name) AS handler FROM pitboss_handlers WHERE resources IS NOT NULL GROUP BY queue
