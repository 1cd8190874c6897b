SELECT queue, min(resources) FROM pitboss_handlers WHERE resources IS NOT NULL GROUP BY queue
