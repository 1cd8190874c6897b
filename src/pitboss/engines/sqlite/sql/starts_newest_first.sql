SELECT at, n FROM starts WHERE queue = ? ORDER BY at DESC
