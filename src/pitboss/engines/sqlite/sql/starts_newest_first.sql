SELECT at, n FROM pitboss_starts WHERE queue = ? ORDER BY at DESC
