"""Composition root: the only place that names concrete engines, and loads one only when a URL asks for it."""

import random
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from pitboss.engines.protocol import (
    Clock,
    Control,
    Desired,
    Engine,
    Failpoint,
    Handlers,
    Ledger,
    Queues,
    Schema,
    Sessions,
    Within,
)
from pitboss.model.errors import InvalidInput

_FORMS = "sqlite:///file.db, postgresql://user@host/database, memory://"


class Store(Engine, Sessions, Ledger, Control, Queues, Handlers, Desired, Protocol):
    """What every engine has."""


class SqlStore(Store, Schema, Within, Protocol):
    """What an SQL engine has besides."""


class SystemClock:
    """This machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000


def randbits() -> Callable[[int], int]:
    """Randomness for ids: seeded by the operating system, fast."""
    return random.Random(random.SystemRandom().getrandbits(256)).getrandbits


def make_engine(url: str, *, clock: Clock | None = None, failpoint: Failpoint | None = None) -> Store:
    """The engine that a URL names, not yet opened. A clock is for tests; without one the store's own decides."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            from pitboss.engines.memory import MemoryEngine

            return MemoryEngine(clock=clock or SystemClock(), failpoint=failpoint)
        case "sqlite":
            from pitboss.engines.sqlite import SqliteEngine

            return SqliteEngine(_path(url, rest), clock=clock or SystemClock(), failpoint=failpoint)
        case "postgres" | "postgresql":
            from pitboss.engines.postgres import PostgresEngine

            dsn, schema = _with_schema(url)
            return PostgresEngine(dsn, schema=schema, clock=clock, failpoint=failpoint)
    raise InvalidInput(
        f'"{url}" does not name a store', why=f"a store's URL looks like {_FORMS}", fix="use one of these"
    )


def _path(url: str, rest: str) -> str:
    path = unquote(rest.partition("?")[0])
    if not path.startswith("/") or path == "/":
        raise InvalidInput(
            f'"{url}" does not name a file',
            why="a SQLite URL has three slashes before a relative path and four before an absolute one",
            fix="write it like sqlite:///pitboss.db",
        )
    return path[1:]


def _with_schema(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    schema = query.pop("schema", "pitboss")
    return urlunsplit(parts._replace(query=urlencode(query))), schema
