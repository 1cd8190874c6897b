"""PostgreSQL: many managers on many hosts, one store."""

from pitboss.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
