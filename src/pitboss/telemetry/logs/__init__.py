"""Log files: one JSON line per message, one file per worker and one for the manager."""
