"""App: what users import. It holds declarations and opens nothing until something is enqueued."""

import inspect
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from msgspec import UNSET
from msgspec.structs import replace

from pitboss.client.app_core import LIMIT, Connection
from pitboss.client.context import current
from pitboss.client.declaring import Declaring
from pitboss.client.handle import Handle
from pitboss.client.hooks import HookDecorators, Hooks
from pitboss.client.options import Options
from pitboss.client.policy_settings import PolicyDefaults, policy_defaults
from pitboss.client.resources import Resources
from pitboss.client.state import WorkerState
from pitboss.model.duration import SECOND, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import IdMaker
from pitboss.model.new_task import new_task
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.task import NewTask, Placed
from pitboss.telemetry.traces import sending, traced_meta

if TYPE_CHECKING:
    from pitboss.client.app_schedules import AppSchedules
    from pitboss.client.params import EventData, Params
    from pitboss.client.publishing import Publisher
    from pitboss.engines.protocol import Clock, Store
    from pitboss.http.mounted import Mounted
    from pitboss.model.event import Published
    from pitboss.model.message import OutMessage
    from pitboss.model.pool_keys import DeclaredPool, PoolKeys
    from pitboss.model.queue import QueueSettings
    from pitboss.model.resource import KeyValue
    from pitboss.model.resource_keys import DeclaredResources, ResourceKeys
    from pitboss.model.schedule import ScheduleSpec
    from pitboss.secrets import KeyRing

T = TypeVar("T")


class App(HookDecorators, Declaring):
    """Handlers, and where their tasks are stored.

    The store is what `PITBOSS_STORE` says, else `pitboss.toml`, else the URL given here, else the file `pitboss.db`:
    code names a sensible place, and each installation can choose another one without changing the code. What the app
    declares is stored under its `name`, by default that of the module that makes it.
    """

    def __init__(self, store: str | None = None, *, name: str | None = None) -> None:
        super().__init__()
        self.name = checked_name(name or _module_name(sys._getframe(1).f_globals), "Pitboss app")
        self.hooks = Hooks()
        self.pools: dict[str, DeclaredPool] = {}
        self.secrets_file: str | None = None
        self.store_url = store
        self._ring: KeyRing | None = None
        self._policy_defaults: PolicyDefaults | None = None
        self._publisher: Publisher | None = None

    def __enter__(self) -> "App":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def publish(
        self,
        name: str,
        data: Any = UNSET,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        within: Any = None,
    ) -> "Published":
        """Store an event, and a task for each handler of it; when this returns, they survive anything.

        Without data, the handlers get an empty object.

        Handlers that keep the order get events with one `key` in order. With an `idempotency_key`, a repetition within
        a day publishes nothing more. `within` is your own connection to the same SQL store: the event shares the fate
        of your transaction.
        """
        return self._publishing().publish(name, data, key=key, idempotency_key=idempotency_key, within=within)

    async def apublish(
        self,
        name: str,
        data: Any = UNSET,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        within: Any = None,
    ) -> "Published":
        """As `publish`, for async callers."""
        return await self._publishing().apublish(name, data, key=key, idempotency_key=idempotency_key, within=within)

    def publish_many(
        self, name: str, datas: Iterable[Any], *, key: str | None = None, within: Any = None
    ) -> "list[Published]":
        """Publish an event for each of the data in one act, all of them or none."""
        return self._publishing().publish_many(name, datas, key=key, within=within)

    async def apublish_many(
        self, name: str, datas: Iterable[Any], *, key: str | None = None, within: Any = None
    ) -> "list[Published]":
        """As `publish_many`, for async callers."""
        return await self._publishing().apublish_many(name, datas, key=key, within=within)

    def publish_to(
        self,
        queue: str,
        message: Any,
        *,
        source: str | None = None,
        exchange: str = "",
        headers: Mapping[str, Any] | None = None,
        message_id: str | None = None,
        within: Any = None,
    ) -> Handle[None]:
        """Publish a message to a queue of RabbitMQ; when this returns, it is stored, and will reach the broker.

        The message is sent as JSON, bytes as they are. `source` names the source whose broker is meant; it may be left
        out if the store has one source. With an `exchange`, `queue` is the routing key. `within` is your own connection
        to the same SQL store. The handle's `result()` waits until the broker has confirmed the message.
        """
        made = self._message(queue, message, exchange=exchange, headers=headers, message_id=message_id)
        task = self.run(self._outbox_task(made, source), what="publishing to a broker")
        if within is not None:
            placed: Placed = self.within_engine("publish").put_within(within, [task])[0]
        else:
            placed = self.ask(lambda client: client.put([task]), limit=LIMIT, what="publishing to a broker")[0]
        return Handle(self, placed, None)

    async def apublish_to(
        self,
        queue: str,
        message: Any,
        *,
        source: str | None = None,
        exchange: str = "",
        headers: Mapping[str, Any] | None = None,
        message_id: str | None = None,
        within: Any = None,
    ) -> Handle[None]:
        """As `publish_to`, for async callers."""
        made = self._message(queue, message, exchange=exchange, headers=headers, message_id=message_id)
        task = await self.arun(self._outbox_task(made, source))
        if within is not None:
            answer = self.within_engine("publish").put_within(within, [task])
            placed: Placed = (await answer if inspect.isawaitable(answer) else answer)[0]
        else:
            placed = (await self.aask(lambda client: client.put([task])))[0]
        return Handle(self, placed, None)

    @property
    def schedules(self) -> "AppSchedules":
        """The schedules of the store: add, change, pause, run and remove them."""
        from pitboss.client.app_schedules import AppSchedules

        return AppSchedules(self)

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

    def web(self, *, hosts: Iterable[str] = ("*",)) -> "Mounted":
        """The HTTP API and the dashboard of the app's store as an ASGI application, to be mounted in another one. Every
        request needs a key. `hosts`: the names under which browsers may ask for it; by default the other application
        decides. Await its `aclose()` at the end."""
        from pitboss import config, wiring

        return wiring.make_mounted(config.load(store=self.store_url).store, tuple(hosts))

    # For the app's own parts, workers and tests.

    def make_ids(self) -> IdMaker:
        from pitboss import wiring

        return IdMaker(wiring.SystemClock().now, wiring.randbits())

    def params_of(self, name: str, function: Callable[..., Any]) -> "Params":
        from pitboss.client.params import Params

        return Params(name, function)

    def schedule_spec(self, name: str, handler: str, **fields: Any) -> "ScheduleSpec":
        from pitboss.client.schedules import schedule_spec

        return schedule_spec(name, handler, **fields)

    def queues_with_settings(self) -> "dict[str, QueueSettings]":
        from pitboss import config

        used = (handler.queue for handler in self.handlers.values())
        return config.declared_queues(config.load(store=self.store_url), self._queues, used)

    def event_data_of(self, name: str, kind: Any) -> "EventData":
        from pitboss.client.params import EventData

        return EventData(name, kind)

    def policy_defaults(self) -> PolicyDefaults:
        if self._policy_defaults is None:
            from pitboss import config

            said = config.load(store=self.store_url).defaults
            self._policy_defaults = policy_defaults(said.max_attempts, said.backoff, said.timeout)
        return self._policy_defaults

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

    def _publishing(self) -> "Publisher":
        if self._publisher is None:
            from pitboss.client.publishing import Publisher

            self._publisher = Publisher(self)
        return self._publisher

    async def _send(self, name: str, params: Mapping[str, Any], options: dict[str, Any]) -> Placed:
        handler = self.handlers.get(name)
        if handler is None:
            return await self._send_by_name(name, params, options)
        chosen = handler.using(**options) if options else handler
        with sending(chosen.queue, chosen.name) as span:
            placed = await self._put([chosen.prepared_from(params)], chosen.options)
            span.placed(placed)
        return placed[0]

    async def _send_by_name(self, name: str, params: Mapping[str, Any], options: dict[str, Any]) -> Placed:
        """A task of a handler that this process does not have."""
        from pitboss.client import schema

        checked_name(name, "task")
        client = await self.introduced()
        known = await client.lookup(name) or HandlerInfo(name=name)
        queue = options.pop("queue", None)
        chosen_options = Options().changed(**options)
        context = current()
        parent = context.id if context else None
        task = new_task(known, schema.checked(known, params), self.new_id(), chosen_options, queue=queue, parent=parent)
        with sending(task.queue, name) as span:
            task = replace(task, meta=traced_meta(context.inherited if context else None))
            placed = await client.put([task], wait=chosen_options.wait)
            span.placed(placed)
        return placed[0]

    def _message(self, queue: str, message: Any, **options: Any) -> "OutMessage":
        from pitboss.client.messages import out_message

        return out_message(queue, message, **options)

    async def _outbox_task(self, message: "OutMessage", source: str | None) -> NewTask:
        from pitboss.client.messages import outbox_task

        context = current()
        parent = context.id if context else None
        return await self.aask(lambda client: outbox_task(client, message, source, self.new_id(), parent))


def _module_name(module: Mapping[str, Any]) -> str:
    """The name under which the module is imported, also if it is run as a program."""
    name = module.get("__name__", "__main__")
    if name == "__main__":
        spec = module.get("__spec__")
        name = spec.name if spec is not None else Path(module.get("__file__") or "app").stem
    return re.sub(r"[^A-Za-z0-9_.:-]|^[.:-]+", "_", name.removesuffix(".__main__"))[:128]
