"""Sources: the loops that turn a broker's messages into tasks, and tasks into messages."""
