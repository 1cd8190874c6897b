UPDATE pitboss_resources SET stage = 'ready' WHERE pool = ? AND stage = 'away' AND available_at <= ?
