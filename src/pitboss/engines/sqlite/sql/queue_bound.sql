UPDATE pitboss_queues SET capacity = ?2 WHERE name = ?1
