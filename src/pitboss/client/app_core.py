"""The part of an app that talks to its store. Handles, handlers, batches and pools all go through it.

The core is async and runs on one private loop. The sync face of every call is `run` over its async twin.
"""

import asyncio
import inspect
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pitboss.client.acting import act_of_code
from pitboss.client.client import Client
from pitboss.client.fallbacks import check_fallbacks
from pitboss.client.http_connections import HttpConnections
from pitboss.client.options import Options
from pitboss.client.policy_settings import PolicyDefaults
from pitboss.client.private_loop import PrivateLoop
from pitboss.client.standstill import Standstill
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Clock, Store, Within
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, QueueFull, StoreFull, StoreUnavailable
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo
from pitboss.model.redact import Redactor
from pitboss.model.resource import KeyValue
from pitboss.model.resource_keys import DeclaredResources
from pitboss.model.task import NewTask, Placed

if TYPE_CHECKING:
    from pitboss.client.handler import Handler
    from pitboss.client.params import Params
    from pitboss.client.resources import Resources
    from pitboss.secrets import KeyRing

T = TypeVar("T")
# How long one answer of the store may take.
LIMIT = 15.0


class AppCore(ABC):
    """What the parts of an app need of it. `App` adds the declarations, and what needs settings or an engine's name."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler[Any, Any, Any]] = {}
        self.resource_pools: dict[str, Resources] = {}
        self.redactor = Redactor()
        self.standstill = Standstill()
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._ids: IdMaker | None = None
        self._http: HttpConnections | None = None

    @abstractmethod
    def use(self, store: Store | str | None, *, clock: Clock | None = None) -> Store:
        """Put the app on another store from now on: a URL, an engine that is not open yet, or None for its own."""

    @abstractmethod
    def make_ids(self) -> IdMaker: ...

    @abstractmethod
    def params_of(self, name: str, function: Callable[..., Any]) -> "Params": ...

    @abstractmethod
    def policy_defaults(self) -> PolicyDefaults:
        """The policy of handlers that do not say theirs."""

    @abstractmethod
    def ring(self) -> "KeyRing":
        """The keys of this app's secrets."""

    @abstractmethod
    def use_keys(self, ring: "KeyRing | None") -> None: ...

    @abstractmethod
    def keys_of(self, declared: DeclaredResources) -> dict[str, KeyValue]:
        """The keys of a pool: what the code says, overridden by file and environment."""

    def describe(self) -> list[HandlerInfo]:
        """Every handler as data."""
        check_fallbacks(self.handlers)
        return [handler.describe() for handler in self.handlers.values()]

    def new_id(self) -> str:
        with self._lock:
            if self._ids is None:
                self._ids = self.make_ids()
            return self._ids()

    def close(self) -> None:
        """Disconnect from the store. The next call opens it again."""
        http, self._http = self._http, None
        if http is not None:
            http.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def http_connections(self) -> HttpConnections:
        """The connections of members that this process keeps open."""
        with self._lock:
            # A fork takes the object along, but must not write to the same sockets.
            if self._http is None or self._http.pid != os.getpid():
                self._http = HttpConnections()
            return self._http

    # Calls. `work` is given the client of the open store, and runs on the private loop.

    async def aask(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return await self.arun(self._asked(work))

    def ask(self, work: Callable[[Client], Coroutine[Any, Any, T]], *, limit: float, what: str) -> T:
        return self.run(self._asked(work), limit=limit, what=what)

    def begin(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Start the work in the background."""
        return self._connected().loop.submit(self._asked(work))

    def acting(self, client: Client, act: str, target: str = "", **details: object) -> Client:
        """The client for an act that belongs in the audit log, where it has this name, as on the command line."""
        return client.audited(act_of_code(self.new_id(), act, target, details))

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._loop_for(work).arun(work)

    def run(self, work: Coroutine[Any, Any, T], *, what: str, limit: float = LIMIT) -> T:
        loop = self._loop_for(work)
        if getattr(self._connected().engine, "heard_in", None) == threading.get_ident():
            work.close()
            raise InvalidInput(
                f"{what} with a sync call would block this worker and wait for itself",
                why="an async handler runs on the event loop through which the store's answer comes",
                fix="use the async call: await app.apublish(…), await task.aenqueue(…), await app.asend(…)",
            )
        return loop.run(work, limit=limit, what=what)

    # Enqueueing.

    def place(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]:
        """Store tasks of one handler."""
        if options.within is not None:
            within, tasks = self.within_engine(), list(tasks)
            self.refuse_without_tables(options.within)
            self.run(self._prepare_within(tasks, options), what="opening the store")
            placed: list[Placed] = within.put_within(options.within, tasks)
            return placed
        connection = self._connected()
        if not connection.gradual:
            tasks = list(tasks)
        if connection.direct is not None and tasks and tasks[0].handler in connection.client.known:
            # An engine that can be called from here spares the way over the loop. If it cannot store the tasks at
            # once, the loop waits and repeats.
            with suppress(QueueFull, StoreFull, StoreUnavailable):
                return connection.direct.put_sync(tasks)
        return self.run(self._put(tasks, options), limit=LIMIT + (options.wait or 0) / SECOND, what="enqueueing")

    async def aplace(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]:
        if options.within is not None:
            within, tasks = self.within_engine(), list(tasks)
            self.refuse_without_tables(options.within)
            await self.arun(self._prepare_within(tasks, options))
            answer = within.put_within(options.within, tasks)
            placed: list[Placed] = await answer if inspect.isawaitable(answer) else answer
            return placed
        return await self.arun(self._put(tasks if self._connected().gradual else list(tasks), options))

    async def introduced(self, *handlers: str) -> Client:
        """The client, once the store knows these handlers: tasks of unknown ones would be held."""
        client = await self._connected().opened()
        if any(name not in client.known for name in handlers):
            await client.introduce(self.describe())
        return client

    async def _put(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]:
        client = await self.introduced(*(task.handler for task in tasks[:1]))
        return await client.put(tasks, wait=options.wait)

    def within_engine(self, verb: str = "enqueue") -> Within:
        """The engine, if it can take part in a caller's transaction."""
        connection = self._connected()
        if connection.within is None:
            raise InvalidInput(
                f"the {connection.engine.name} engine cannot {verb} within a caller's transaction",
                why="only SQL stores share a transaction with your own data",
                fix="leave within= out, or use SQLite or PostgreSQL",
            )
        return connection.within

    async def _prepare_within(self, tasks: Sequence[NewTask], options: Options) -> None:
        # Inside an open transaction of SQLite nothing else can be written. Tasks of a handler that the store does not
        # know are held until a manager registers it.
        if getattr(options.within, "in_transaction", False):
            await self._connected().opened()
        else:
            await self.introduced(*(task.handler for task in tasks))

    def refuse_without_tables(self, connection: Any) -> None:
        """Inside an open transaction of SQLite the store's tables cannot be made. In the thread of the connection."""
        if (
            getattr(connection, "in_transaction", False)
            and not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'pitboss_meta'").fetchone()
        ):
            raise InvalidInput(
                "this file has no tables of Pitboss yet",
                why="they cannot be made while your transaction is open",
                fix="start a manager, or call app.declare() once when the process starts; nothing was written",
            )

    def _loop_for(self, work: Coroutine[Any, Any, object]) -> PrivateLoop:
        try:
            return self._connected().loop
        except BaseException:
            # Or Python warns that it was never awaited.
            work.close()
            raise

    async def _asked(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return await work(await self._connected().opened())

    def _connected(self) -> "Connection":
        connection = self._connection
        # A fork takes the object along, but not the thread behind it.
        if connection is None or connection.pid != os.getpid():
            with self._lock:
                connection = self._connection
                if connection is None or connection.pid != os.getpid():
                    self._connection = None
                    self.use(None)
                    connection = self._connection
        assert connection is not None
        return connection


class Connection:
    """One engine on a private loop, opened at the first call."""

    def __init__(self, engine: Store, clock: Clock, keys: Callable[[str], Mapping[str, KeyValue]]) -> None:
        self.engine, self.loop, self.pid = engine, PrivateLoop(), os.getpid()
        has = capabilities(engine)
        self.direct, self.gradual, self.within = has.direct, has.gradual, has.within
        self.client = Client(engine, clock, keys)
        self._opening: asyncio.Future[None] | None = None

    async def opened(self) -> Client:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self.engine.open())
        try:
            await asyncio.shield(self._opening)
        except Exception:
            self._opening = None
            raise
        return self.client

    def close(self) -> None:
        if self.pid == os.getpid():
            if self._opening is not None:
                self.loop.run(self.engine.close(), limit=LIMIT, what="closing the store")
            self.loop.close()
