DELETE FROM starts WHERE queue = ? AND at <= ?
