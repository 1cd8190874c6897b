UPDATE queues SET capacity = ?2 WHERE name = ?1
