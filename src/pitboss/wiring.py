"""Composition root: the only module that names concrete engines. It loads one only when a URL asks for it."""

import random
import secrets
import socket
import string
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from pitboss.engines import host_clock
from pitboss.engines.broker_protocol import Broker
from pitboss.engines.protocol import Clock, Failpoint, Store
from pitboss.model.errors import InvalidInput, Unsupported
from pitboss.model.ids import IdMaker
from pitboss.model.session import SessionInfo

if TYPE_CHECKING:
    from pitboss.engines.protocol import FullStore
    from pitboss.http.context import Server
    from pitboss.http.mounted import Mounted

_FORMS = "sqlite:///file.db, postgresql://user@host/database, memory://"
SystemClock = host_clock.SystemClock
_KEY_ID_LETTERS = string.ascii_lowercase + string.digits
_KEY_ID_LENGTH = 8
_KEY_SECRET_BYTES = 32


def randbits() -> Callable[[int], int]:
    """Randomness for ids: seeded by the operating system, fast."""
    return random.Random(random.SystemRandom().getrandbits(256)).getrandbits


def luck() -> Callable[[], float]:
    """Random numbers in [0, 1), which spread retries so that they do not all come at once."""
    return random.Random(random.SystemRandom().getrandbits(256)).random


def key_id() -> str:
    """A new id of a key of the HTTP API. It has no "_", which ends it in the key's text."""
    return "".join(secrets.choice(_KEY_ID_LETTERS) for _ in range(_KEY_ID_LENGTH))


def key_secret() -> str:
    """A new secret of such a key: 43 characters that cannot be guessed."""
    return secrets.token_urlsafe(_KEY_SECRET_BYTES)


def make_engine(url: str, *, clock: Clock | None = None, failpoint: Failpoint | None = None) -> Store:
    """The engine that a URL names, not yet opened. Tests pass a clock; by default the store's own clock decides."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            from pitboss.engines.memory import MemoryEngine

            return MemoryEngine(clock=clock or SystemClock(), failpoint=failpoint)
        case "sqlite":
            from pitboss.engines.sqlite import SqliteEngine

            return SqliteEngine(_path(url, rest), clock=clock or SystemClock(), failpoint=failpoint)
        case "postgres" | "postgresql":
            return _postgres(url, clock, failpoint)
    raise InvalidInput(
        f'"{url}" does not name a store', why=f"a store's URL looks like {_FORMS}", fix="use one of these"
    )


def make_broker(url: str) -> Broker:
    """The message broker that a URL names, not yet connected."""
    if url.partition("://")[0] not in ("amqp", "amqps"):
        # The URL is not shown: in one without a known scheme, no place for the password is known either.
        raise InvalidInput(
            "the URL does not name a message broker",
            why="it looks like amqp://user:password@host:5672/vhost, or amqps:// for TLS",
            fix="use one of these",
        )
    try:
        from pitboss.engines.amqp import AmqpBroker
    except ModuleNotFoundError as error:
        raise _no_driver("RabbitMQ", "amqp", error) from error
    return AmqpBroker(url)


def make_server(store: "FullStore", *, release: str = "") -> "Server":
    """What serves the HTTP API and the dashboard from this store, which is open."""
    from pitboss.http.context import Server

    return Server(
        store,
        info=SessionInfo(host=socket.gethostname(), kind="http"),
        make_id=IdMaker(store.clock.now, randbits()),
        make_key_id=key_id,
        make_secret=key_secret,
        luck=luck(),
        release=release,
        boot_id=host_clock.boot_id(),
    )


def make_mounted(url: str, hosts: Sequence[str]) -> "Mounted":
    """The HTTP API and the dashboard, to be mounted in another application."""
    from pitboss.http.gate import GateRules
    from pitboss.http.mounted import Mounted

    async def opened() -> "Server":
        store = cast("FullStore", make_engine(url))
        await store.open()
        return make_server(store, release=metadata.version("pitboss"))

    # The other application has its own address, so that every request needs a key.
    return Mounted(opened, GateRules(local=False, hosts=tuple(hosts)))


def absent_file(url: str) -> Path | None:
    """The file of a SQLite store that does not exist yet; None if it exists, or the store is not a file."""
    scheme, _, rest = url.partition("://")
    path = Path(_path(url, rest)) if scheme == "sqlite" else None
    return path if path is not None and not path.exists() else None


def schema_script(engine: str, *, schema: str = "pitboss", since: int = 0) -> str:
    """The SQL that brings a store of version `since` to the current one. Needs no connection."""
    match engine:
        case "sqlite":
            from pitboss.engines.sqlite import schema as sqlite_schema

            return sqlite_schema.script(since)
        case "postgres" | "postgresql":
            try:
                from pitboss.engines.postgres import schema as postgres_schema
            except ModuleNotFoundError as error:
                raise _no_driver("PostgreSQL", "postgres", error) from error
            return postgres_schema.upgrade_script(schema, since)
    raise InvalidInput(
        f'"{engine}" is not an engine with a schema', why="only SQL stores have tables", fix="say sqlite or postgres"
    )


def _postgres(url: str, clock: Clock | None, failpoint: Failpoint | None) -> Store:
    try:
        from pitboss.engines.postgres import PostgresEngine
    except ModuleNotFoundError as error:
        raise _no_driver("PostgreSQL", "postgres", error) from error
    dsn, schema = _with_schema(url)
    return PostgresEngine(dsn, schema=schema, clock=clock, failpoint=failpoint)


def _no_driver(store: str, extra: str, error: ModuleNotFoundError) -> Unsupported:
    return Unsupported(
        f"the driver for {store} is not installed",
        why=f"{error}; it is an extra, so that an installation without {store} stays small",
        fix=f"pip install 'pitboss[{extra}]'",
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
