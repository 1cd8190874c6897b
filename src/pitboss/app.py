"""App: what users import. It holds declarations and opens nothing until something is enqueued."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from pitboss.client.app_core import LIMIT, Connection
from pitboss.client.batches import BatchMethods
from pitboss.client.handle import Handle
from pitboss.client.handler import Handler, refuse_foreign_pool, refuse_mixed
from pitboss.client.hooks import HookDecorators, Hooks
from pitboss.client.options import Options
from pitboss.client.resources import Resources
from pitboss.client.state import WorkerState
from pitboss.model.duration import SECOND, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import IdMaker
from pitboss.model.new_task import new_task
from pitboss.model.policy import Backoff, Policy, Rule
from pitboss.model.policy import backoff as make_backoff
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.task import NewTask, Placed

if TYPE_CHECKING:
    from pitboss.client.params import Params
    from pitboss.engines.protocol import Clock, Store
    from pitboss.model.pool_keys import DeclaredPool, PoolKeys
    from pitboss.model.resource import KeyValue
    from pitboss.model.resource_keys import DeclaredResources, ResourceKeys
    from pitboss.secrets import KeyRing

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Decorator:
    """The types of `@app.task(...)`: it keeps the parameters, and knows the results of sync and async functions."""

    def __init__(self, make: Callable[[Callable[..., Any]], Handler[Any, Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Handler[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Handler[P, R, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Handler[Any, Any, Any]:
        return self._make(function)


class App(HookDecorators, BatchMethods):
    """Handlers, and where their tasks are stored.

    The store is what `PITBOSS_STORE` says, else `pitboss.toml`, else the URL given here, else the file `pitboss.db`:
    code names a sensible place, and each installation can choose another one without changing the code.
    """

    def __init__(self, store: str | None = None) -> None:
        super().__init__()
        self.hooks = Hooks()
        self.pools: dict[str, DeclaredPool] = {}
        self.secrets_file: str | None = None
        self.store_url = store
        self._ring: KeyRing | None = None

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
        """Declare a handler. The store knows it by its `name` (by default the function's), which should never change.

        `max_rotations` is how often a task may move on to another resource before that costs an attempt. The further
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
        wait = options.get("wait")
        limit = LIMIT + (0 if wait is None else span(wait, what="wait") / SECOND)
        return self.run(self.asend(name, params, **options), limit=limit, what="enqueueing")

    async def asend(self, name: str, params: Mapping[str, Any] | None = None, **options: Any) -> Handle[Any]:
        """As `send`, for async callers."""
        placed = await self.arun(self._send(name, params or {}, options))
        handler = self.handlers.get(name)
        return Handle(self, placed, handler.params.unpack_result if handler else None)

    def use(self, store: "Store | str | None", *, clock: "Clock | None" = None) -> "Store":
        """Put the app on another store from now on: a URL, an engine that is not open yet, or None for its own."""
        from pitboss import config, wiring

        self.close()
        if store is None or isinstance(store, str):
            store = wiring.make_engine(store or config.load(store=self.store_url).store, clock=clock)
        self._connection = Connection(
            store, wiring.SystemClock(), lambda name: self.keys_of(self.resource_pools[name].declared)
        )
        return store

    # For the app's own parts, workers and tests.

    def make_ids(self) -> IdMaker:
        from pitboss import wiring

        return IdMaker(wiring.SystemClock().now, wiring.randbits())

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

    def keys_of(self, declared: "DeclaredResources") -> "dict[str, KeyValue]":
        """The keys of a pool: what the code says, overridden by file and environment."""
        from pitboss import config

        return config.resource_keys(config.load(store=self.store_url), declared)

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
        refuse_foreign_pool(handler, self.resource_pools)
        refuse_mixed(handler, self.handlers)
        self.handlers[handler.name] = handler

    async def _send(self, name: str, params: Mapping[str, Any], options: dict[str, Any]) -> Placed:
        handler = self.handlers.get(name)
        if handler is not None:
            chosen = handler.using(**options) if options else handler
            return (await self._put([chosen.prepared_from(params)], chosen.options))[0]
        from pitboss.client import schema

        client = await self.introduced()
        known = await client.lookup(name) or HandlerInfo(name=checked_name(name, "task"))
        queue = options.pop("queue", None)
        chosen_options = Options().changed(**options)
        task = new_task(known, schema.checked(known, params), self.new_id(), chosen_options, queue=queue)
        return (await client.put([task], wait=chosen_options.wait))[0]
