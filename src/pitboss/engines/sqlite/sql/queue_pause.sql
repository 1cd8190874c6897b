UPDATE pitboss_queues SET paused = ?2, paused_by = ?3, paused_at = ?4 WHERE name = ?1
