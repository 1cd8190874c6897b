SELECT state, n FROM counts WHERE queue = ? AND n > 0
