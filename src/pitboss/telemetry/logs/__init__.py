"""Log files: one JSON line per event, one file per worker and one for the manager."""
