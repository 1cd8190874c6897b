SELECT queue FROM pitboss_handlers WHERE resources IS NOT NULL GROUP BY queue HAVING min(resources) = ?
