"""One file, no server: the default store. Durable as PostgreSQL, shared by every process that opens the file."""

from pitboss.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
