UPDATE queues SET rate = ?2 WHERE name = ?1
