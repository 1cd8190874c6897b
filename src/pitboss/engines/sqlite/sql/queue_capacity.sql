SELECT capacity FROM queues WHERE name = ?
