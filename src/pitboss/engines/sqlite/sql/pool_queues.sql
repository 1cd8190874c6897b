-- SQLite takes `resources` from the row of the minimum.
SELECT queue
FROM (SELECT queue, resources, min(name) AS handler FROM pitboss_handlers WHERE resources IS NOT NULL GROUP BY queue)
WHERE resources = ?
