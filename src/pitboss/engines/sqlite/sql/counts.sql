SELECT queue, state, n FROM counts WHERE n > 0
