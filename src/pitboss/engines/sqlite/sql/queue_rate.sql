UPDATE pitboss_queues SET rate = ?2 WHERE name = ?1
