"""App: what users import. It holds declarations and opens nothing until something is enqueued."""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from pitboss.client.batches import Batching
from pitboss.client.bound_queues import refuse_mixed, refuse_stranger
from pitboss.client.bridge import Bridge
from pitboss.client.client import Client
from pitboss.client.handle import Handle
from pitboss.client.handler import Handler
from pitboss.client.hooks import Hooks, Listening
from pitboss.client.options import Options
from pitboss.client.resources import Resources
from pitboss.client.state import WorkerState
from pitboss.model.duration import SECOND, Time, span
from pitboss.model.errors import InvalidInput, QueueFull, StoreUnavailable
from pitboss.model.ids import IdMaker
from pitboss.model.policy import Backoff, Policy, Rule
from pitboss.model.policy import backoff as make_backoff
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.redact import Redactor
from pitboss.model.task import NewTask, Placed
from pitboss.model.want_template import want_from_schema

if TYPE_CHECKING:
    from pitboss.client.params import Params
    from pitboss.engines.protocol import Clock
    from pitboss.model.pool_keys import DeclaredPool, PoolKeys
    from pitboss.model.resource import PoolRules
    from pitboss.model.resource_keys import DeclaredResources, ResourceKeys
    from pitboss.secrets import KeyRing
    from pitboss.wiring import Store

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_LIMIT = 15.0


class _Decorator:
    """Types of `@app.task(...)`: keeps the parameters, and knows the result of sync and async functions."""

    def __init__(self, make: Callable[[Callable[..., Any]], Handler[Any, Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Handler[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Handler[P, R, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Handler[Any, Any, Any]:
        return self._make(function)


class App(Listening, Batching):
    """Handlers, and where their tasks are stored.

    The store is what `PITBOSS_STORE` says, else `pitboss.toml`, else the URL given here, else the file `pitboss.db`:
    code names a sensible place, and whoever runs it can choose another without changing it.
    """

    def __init__(self, store: str | None = None) -> None:
        self.handlers: dict[str, Handler[Any, Any, Any]] = {}
        self.hooks = Hooks()
        self.pools: dict[str, DeclaredPool] = {}
        self.resource_pools: dict[str, Resources] = {}
        self.redactor = Redactor()
        self.secrets_file: str | None = None
        self._ring: KeyRing | None = None
        self.store_url = store
        self._ids: IdMaker | None = None
        self._lock = threading.Lock()
        self._link: _Link | None = None

    def __enter__(self) -> "App":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Handler[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Handler[P, R, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int = 5,
        backoff: Backoff | Time | None = None,
        timeout: Time | None = None,
        rules: Mapping[str, Rule] | None = None,
        max_rotations: int = 10,
        **options: Any,
    ) -> _Decorator: ...

    def task(self, *function: Callable[..., Any], **declared: Any) -> Any:
        """Declare a handler. `name` is how the store knows it (the function's name by default) and should never change.

        `max_rotations` is how often a task is handed on to another resource before that costs an attempt. The further
        options (`priority`, `tags`, `key`, `expires_in` …) are those of `Handler.using`.
        """
        decorator = self._declaring(**declared)
        return decorator(*function) if function else decorator

    def pool(self, name: str, **keys: "Unpack[PoolKeys]") -> None:
        """Declare a worker pool: `app.pool("download", queues=["download"], workers=2, memory="512MB")`.

        The keys are those of `[pools.NAME]` in `pitboss.toml`, which overrides what is said here key by key. Without
        `queues`, the pool serves all of them. An app without pools has one with a worker per core.
        """
        from pitboss.model.pool_keys import declared, same_pool

        pool = declared(name, keys)
        if any(same_pool(name) == same_pool(other) for other in self.pools):
            raise InvalidInput(
                f'there are two pools named "{name}"',
                why="names that differ only in capitals, or in - and _, are the same in the environment",
                fix="declare it once, with all its keys",
            )
        self.pools[name] = pool

    def resources(self, name: str, **keys: "Unpack[ResourceKeys]") -> Resources:
        """Declare a pool of scarce things: `proxies = app.resources("proxies", per_hour=50, min_delay="2s")`.

        A handler asks for a member with a default: `async def check(profile: str, proxy: Lease = proxies.lease())`. The
        keys are those of `[resources.NAME]` in `pitboss.toml`, which overrides what is said here key by key.
        """
        from pitboss.model.resource_keys import declared_resources

        pool = Resources(self, declared_resources(name, keys, self.resource_pools))
        self.resource_pools[name] = pool
        return pool

    def worker_state(
        self, *, max_uses: int | None = None, max_age: Time | None = None
    ) -> Callable[[Callable[[], AsyncIterator[T]]], WorkerState[T]]:
        """Declare something that each worker makes once and its handlers share, from an async generator that yields it.

        A handler asks for it with a default: `async def shot(url: str, page: Browser = browser())`. After `max_uses`
        tasks or `max_age`, the next task gets a fresh one, and the old one is closed when its last user has left.
        """
        return lambda make: WorkerState(make, max_uses=max_uses, max_age=max_age)

    def send(self, name: str, params: Mapping[str, Any] | None = None, **options: Any) -> Handle[Any]:
        """Enqueue by name: a handler of this app, or one that only other processes know."""
        limit = _LIMIT + _wait_of(options)
        placed = self._linked().bridge.run(self._send(name, params or {}, options), limit=limit, what="enqueueing")
        return self._handle(name, placed)

    async def asend(self, name: str, params: Mapping[str, Any] | None = None, **options: Any) -> Handle[Any]:
        """As `send`, for async callers."""
        placed = await self._linked().bridge.arun(self._send(name, params or {}, options))
        return self._handle(name, placed)

    def describe(self) -> list[HandlerInfo]:
        """Every handler as data."""
        return [handler.describe() for handler in self.handlers.values()]

    def use(self, store: "Store | str | None", *, clock: "Clock | None" = None) -> "Store":
        """Put the app on another store from now on: a URL, an engine that nobody has opened, or None for its own."""
        from pitboss import config, wiring

        self.close()
        if store is None or isinstance(store, str):
            store = wiring.make_engine(store or config.load(store=self.store_url).store, clock=clock)
        self._link = _Link(store, lambda name: self.rules_of(self.resource_pools[name].declared))
        return store

    def close(self) -> None:
        """Let go of the store. The next enqueue opens it again."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    # What handlers and handles ask of their app.

    def new_id(self) -> str:
        with self._lock:
            if self._ids is None:
                from pitboss import wiring

                self._ids = IdMaker(wiring.SystemClock().now, wiring.randbits())
            return self._ids()

    def checked_queue(self, handler: Handler[Any, Any, Any], queue: str) -> str:
        """The queue itself if this handler's tasks may be on it: all of a queue hold members of one pool, or none."""
        refuse_mixed(queue, handler, self.handlers)
        return queue

    def params_of(self, name: str, function: Callable[..., Any]) -> "Params":
        from pitboss.client.params import Params

        return Params(name, function)

    def prepared(self, name: str, params: Mapping[str, Any], **options: Any) -> NewTask:
        """The task that `send` would store, for a handler of this app."""
        handler = self.handlers.get(name)
        if handler is None:
            raise InvalidInput(
                f'this app has no handler "{name}"',
                why="a follow-up is checked where it is made",
                fix=f"use one of {', '.join(sorted(self.handlers))}, or app.send to enqueue at once",
            )
        return (handler.using(**options) if options else handler).prepared_from(params)

    def place(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]:
        """Store tasks of one handler."""
        if options.within is not None:
            placed: list[Placed] = self._place_within(list(tasks), options)
            return placed
        link = self._linked()
        tasks = tasks if link.gradual else list(tasks)
        if link.direct is not None and tasks and link.knows(tasks[0].handler):
            # A store that can be asked from here spares the way over the loop; what it cannot do at once takes it.
            with suppress(QueueFull, StoreUnavailable):
                return link.direct.put_sync(tasks)
        limit = _LIMIT + (options.wait or 0) / SECOND
        return link.bridge.run(self._place(tasks, options), limit=limit, what="enqueueing")

    async def aplace(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]:
        if options.within is not None:
            answer = self._place_within(list(tasks), options)
            placed: list[Placed] = await answer if inspect.isawaitable(answer) else answer
            return placed
        link = self._linked()
        return await link.bridge.arun(self._place(tasks if link.gradual else list(tasks), options))

    def ring(self) -> "KeyRing":
        """The keys of this app's secrets."""
        if self._ring is None:
            from pitboss import config
            from pitboss.secrets import KeyRing

            file = self.secrets_file or config.key_file(config.loaded(code_store=self.store_url))
            self._ring = KeyRing(config.secret_keys(), Path(file))
        return self._ring

    def use_keys(self, ring: "KeyRing | None") -> None:
        """Seal and open secrets with these keys from now on; None for those of the settings."""
        self._ring = ring

    def rules_of(self, declared: "DeclaredResources") -> "PoolRules":
        """What holds for a pool: what code says, and what file and environment say on top."""
        from pitboss import config

        return config.resource_rules(config.load(store=self.store_url), declared)

    def begin(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Start it beside everything else; nobody waits for it."""
        return self._linked().bridge.submit(self._ask(work))

    def ask(self, work: Callable[[Client], Coroutine[Any, Any, T]], *, limit: float, what: str) -> T:
        return self._linked().bridge.run(self._ask(work), limit=limit, what=what)

    async def aask(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return await self._linked().bridge.arun(self._ask(work))

    def _declaring(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int = 5,
        backoff: Backoff | Time | None = None,
        timeout: Time | None = None,
        rules: Mapping[str, Rule] | None = None,
        max_rotations: int = 10,
        **options: Any,
    ) -> _Decorator:
        limit = None if timeout is None else span(timeout, what="timeout")
        pauses = (
            backoff if isinstance(backoff, Backoff) else make_backoff() if backoff is None else make_backoff(backoff)
        )
        policy = Policy(
            max_attempts=max_attempts,
            backoff=pauses,
            timeout=limit,
            rules=dict(rules or {}),
            max_rotations=max_rotations,
        )
        defaults = Options().changed(**options)

        def declare(function: Callable[..., Any]) -> Handler[Any, Any, Any]:
            known_as = name or function.__name__
            handler: Handler[Any, Any, Any] = Handler(
                function, self, name=known_as, queue=queue, policy=policy, options=defaults
            )
            self._add(handler)
            return handler

        return _Decorator(declare)

    def _add(self, handler: Handler[Any, Any, Any]) -> None:
        if handler.name in self.handlers:
            raise InvalidInput(
                f'there are two handlers named "{handler.name}"',
                why=f"tasks are stored under that name; {self.handlers[handler.name].function} has it",
                fix="give one of them another name with @app.task(name=…)",
            )
        refuse_stranger(handler, self.resource_pools)
        self.checked_queue(handler, handler.queue)
        self.handlers[handler.name] = handler

    def _handle(self, name: str, placed: Placed) -> Handle[Any]:
        handler = self.handlers.get(name)
        return Handle(self, placed, handler.params.unpack_result if handler else None)

    async def _send(self, name: str, params: Mapping[str, Any], options: dict[str, Any]) -> Placed:
        handler = self.handlers.get(name)
        if handler is not None:
            chosen = handler.using(**options) if options else handler
            return (await self._place([chosen.prepared_from(params)], chosen.options))[0]
        from pitboss.client import schema

        client = await self._linked().client()
        known = await client.lookup(name) or HandlerInfo(name=checked_name(name, "task"))
        queue = checked_name(options.pop("queue", known.queue), "queue")
        chosen_options = Options().changed(**options)
        text = schema.checked(known, params)
        want = want_from_schema(known.schema, text)
        task = chosen_options.task(
            task_id=self.new_id(), handler=name, queue=queue, params=text, parent=None, want=want
        )
        return (await client.put([task], wait=chosen_options.wait))[0]

    async def _place(self, tasks: Sequence[NewTask], options: Options) -> list[Placed]:
        return await (await self._introduce(tasks[:1])).put(tasks, wait=options.wait)

    async def _introduce(self, tasks: Sequence[NewTask]) -> Client:
        client = await self._linked().client()
        if any(client.unmet(task.handler) for task in tasks):
            await client.introduce(self.describe())
        return client

    def _place_within(self, tasks: Sequence[NewTask], options: Options) -> Any:
        from pitboss.engines.protocol import Within

        link = self._linked()
        engine = link.engine
        if not isinstance(engine, Within):
            raise InvalidInput(
                f"the {engine.name} engine cannot enqueue within a caller's transaction",
                why="only SQL stores share a transaction with your own data",
                fix="leave within= out, or use SQLite or PostgreSQL",
            )
        # Inside an open transaction of SQLite nothing else can be written. A handler that the store does not know yet
        # has its tasks held until a manager comes that does.
        if not getattr(options.within, "in_transaction", False):
            link.bridge.run(self._introduce(tasks), limit=_LIMIT, what="opening the store")
        else:
            link.bridge.run(link.client(), limit=_LIMIT, what="opening the store")
        return engine.put_within(options.within, tasks)

    async def _ask(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return await work(await self._linked().client())

    def _linked(self) -> "_Link":
        with self._lock:
            # A fork takes the object along but not the thread behind it.
            if self._link is None or self._link.pid != os.getpid():
                self._link = None
                self.use(None)
            assert self._link is not None
            return self._link


class _Link:
    """An app's way to its store: a private loop, and in it the engine, opened at the first question."""

    def __init__(self, engine: "Store", rules: Callable[[str], "PoolRules"]) -> None:
        from pitboss import wiring
        from pitboss.engines.protocol import Direct, Gradual

        self.engine, self.bridge, self.pid = engine, Bridge(), os.getpid()
        self.direct = engine if isinstance(engine, Direct) else None
        self.gradual = isinstance(engine, Gradual) and engine.gradual
        self._client = Client(engine, wiring.SystemClock(), rules)
        self._opening: asyncio.Future[None] | None = None

    def knows(self, handler: str) -> bool:
        """Whether the store is open and surely knows the handler."""
        return not self._client.unmet(handler)

    async def client(self) -> Client:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self.engine.open())
        try:
            await asyncio.shield(self._opening)
        except Exception:
            self._opening = None
            raise
        return self._client

    def close(self) -> None:
        if self.pid == os.getpid():
            if self._opening is not None:
                self.bridge.run(self.engine.close(), limit=_LIMIT, what="closing the store")
            self.bridge.close()


def _wait_of(options: Mapping[str, Any]) -> float:
    wait = options.get("wait")
    return 0.0 if wait is None else span(wait, what="wait") / SECOND
