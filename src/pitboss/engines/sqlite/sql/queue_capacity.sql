SELECT capacity FROM pitboss_queues WHERE name = ?
