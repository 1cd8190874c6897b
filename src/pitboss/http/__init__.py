"""The HTTP API, in a process of its own beside the manager."""
