"""The decorators of an app for work without a caller, schedules and events; and all that it declares, as data."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from msgspec.structs import replace

from pitboss.client.app_core import LIMIT
from pitboss.client.client import Client
from pitboss.client.handler import Handler
from pitboss.client.own_parameters import required_parameters, single_parameter
from pitboss.client.policy_settings import PolicyKeys, merged
from pitboss.client.queue_settings import PartitionKeys, queue_settings
from pitboss.client.task_decorators import Decorator, TaskDecorators
from pitboss.engines.declared_protocol import Declarations
from pitboss.model.declared import Declared
from pitboss.model.duration import Time
from pitboss.model.errors import InvalidInput
from pitboss.model.event import EventType, Subscription, checked_event_name, checked_pattern
from pitboss.model.partition_keys import refuse_keyless
from pitboss.model.queue import HandlerInfo, QueueSettings, checked_name
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.text import listed

if TYPE_CHECKING:
    from pitboss.client.params import EventData

_WHEN = ("cron", "every", "at", "tz", "overlap", "catchup", "jitter")


class ScheduledKeys(PolicyKeys, total=False):
    """The options of `scheduled_task`."""

    every: Time | None
    at: datetime | str | None
    tz: str
    params: Mapping[str, Any] | None
    overlap: str
    catchup: str
    jitter: Time | None
    priority: int | None
    retry_limit: int | None
    task_config: Mapping[str, Any] | None


class EventHandlerKeys(PolicyKeys, total=False):
    """The options of `event_handler`."""

    ordered: bool
    priority: int | None
    max_retries: int | None
    event_config: Mapping[str, Any] | None


_SCHEDULED = {*PolicyKeys.__annotations__, *ScheduledKeys.__annotations__, "cron"} - {"task_config"}
_EVENT = {*PolicyKeys.__annotations__, *EventHandlerKeys.__annotations__} - {"event_config"}


class _Scheduled(NamedTuple):
    """A schedule; its params are checked against the handler when the app is described."""

    spec: ScheduleSpec
    handler: Handler[Any, Any, Any]
    params: Mapping[str, Any]


class _Subscribed(NamedTuple):
    handler: Handler[Any, Any, Any]
    pattern: str
    parameter: str
    ordered: bool


class Declaring(TaskDecorators):
    """What an app declares beyond tasks."""

    name: str

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[str, QueueSettings] = {}
        self._schedules: dict[str, _Scheduled] = {}
        self._subscribed: list[_Subscribed] = []
        self._event_types: dict[str, Any] = {}
        self._event_data: dict[str, EventData] = {}
        self._declared_by: Client | None = None
        self._divided: bool | None = None

    @abstractmethod
    def schedule_spec(self, name: str, handler: str, **fields: Any) -> ScheduleSpec: ...

    @abstractmethod
    def queues_with_settings(self) -> dict[str, QueueSettings]:
        """The queues that this app declares or uses, with what the settings say of them; those without any are left
        out."""

    @abstractmethod
    def event_data_of(self, name: str, kind: Any) -> "EventData": ...

    def scheduled_task(self, cron: str | None = None, **keys: Unpack[ScheduledKeys]) -> Decorator:
        """Declare a handler and a schedule of the same name: `@app.scheduled_task(cron="0 0 * * *")`.

        One of `cron`, `every` ("10m") and `at` (a datetime) says when, in the time zone `tz` ("UTC"). `params` are the
        arguments of each run. `overlap` says what a tick does while an earlier run is unfinished: "skip", "queue" or
        "allow"; `catchup`, what becomes of ticks that no manager was there for: "none", "last" or "all". `jitter`
        delays each run by up to that time.

        `retry_limit` is the number of retries after the first attempt, and `retry_delay` the pause before the first of
        them, which doubles. The further options are those of `task`. `task_config` is a dict of such options, which
        keyword arguments override. Over `@app.task`, this adds the schedule only; `name` is then the schedule's.
        """
        given = keys if cron is None else {**keys, "cron": _text(cron)}
        said = merged(given, _SCHEDULED, "task_config")
        when = {key: said.pop(key) for key in _WHEN if key in said}
        params = _params(said.pop("params", {}))

        def declare(function: Callable[..., Any]) -> Handler[Any, Any, Any]:
            own_name = function.name if isinstance(function, Handler) else said.get("name") or function.__name__
            name = said.get("name") or own_name
            if name in self._schedules:
                raise _twice("schedule", name)
            refuse_missing(name, function, params)
            spec = self.schedule_spec(name, own_name, **when)
            handler = self._handler(function, said)
            self._schedules[name] = _Scheduled(spec, handler, params)
            return handler

        return Decorator(declare)

    def event_handler(self, *patterns: str, **keys: Unpack[EventHandlerKeys]) -> Decorator:
        """Declare a handler of events: `@app.event_handler("user.signup")`; "user.*" and "orders.**" match more.

        The data goes into the function's only parameter, and must fit its annotation. `ordered`: events with one key
        are handled one at a time, in the order in which they were published. `max_retries` is the number of retries
        after the first attempt. The further options are those of `task`. `event_config` is a dict of such options,
        which keyword arguments override.
        """
        if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
            raise InvalidInput(
                "this event handler has no event",
                why="it gets the events that it names",
                fix='write @app.event_handler("user.signup")',
            )
        wanted = [checked_pattern(pattern) for pattern in dict.fromkeys(patterns)]
        said = merged(keys, _EVENT, "event_config")
        ordered = bool(said.pop("ordered", False))

        def declare(function: Callable[..., Any]) -> Handler[Any, Any, Any]:
            parameter = single_parameter(function.__name__, function, "events", "event_data")
            handler = self._handler(function, said)
            self._subscribed += [_Subscribed(handler, pattern, parameter, ordered) for pattern in wanted]
            return handler

        return Decorator(declare)

    def event(self, name: str, kind: Any) -> None:
        """Declare the type of an event's data, such as a pydantic model: `app.event("user.signup", Signup)`.

        A publish, here, in another process or over HTTP, is refused if its data does not fit.
        """
        if checked_event_name(name) in self._event_types:
            raise _twice("event", name)
        self._event_types[name] = kind

    def queue(
        self,
        name: str,
        *,
        capacity: int | None = None,
        rate: str | None = None,
        retention: Time | Mapping[str, Time] | None = None,
        **partitions: Unpack[PartitionKeys],
    ) -> None:
        """Declare limits of a queue: `app.queue("mail", capacity=1000, rate="10/s", retention={"completed": "1d"})`.

        What an operator sets (`pitboss queues limit`) stands above it. `retention` is how long finished tasks are kept:
        one time for all of them, or times by state; "forever" keeps them.

        `partition_by="{state}"` divides its tasks among the workers by that parameter. `mode` says how: "affinity"
        (default) lets a worker take tasks of its own keys first, "balanced" only those, "static" only those by the
        table `partitions={0: ["CA", "MT"], 1: ["TX"]}` of slots and their keys. For a table, `on_missing` says what
        happens to keys whose slot no worker has: "hold" (default), "reassign" or "steal"; `keys` are all keys and
        `weights` their shares of the work, for checks; `pool` is the worker pool whose slots are meant. Not more tasks
        of a key run at once than `max_per_key`.
        """
        if checked_name(name, "queue") in self._queues:
            raise _twice("queue", name)
        self._queues[name] = queue_settings(name, capacity, rate, retention, partitions)

    def describe(self) -> list[HandlerInfo]:
        """Every handler as data."""
        found = super().describe()
        refuse_keyless(self._queues, found)
        return found

    def declared(self) -> Declared:
        """All that this app declares beyond its handlers."""
        types = {name: self.event_data(name) for name in sorted(self._event_types)}
        return Declared(
            app=self.name,
            queues=dict(sorted(self._queues.items())),
            schedules=tuple(_spec(self._schedules[name]) for name in sorted(self._schedules)),
            subscriptions=tuple(
                sorted(map(_subscription, self._subscribed), key=lambda one: (one.handler, one.pattern))
            ),
            events=tuple(EventType(name, data.schema()) for name, data in types.items() if data),
        )

    def declare(self) -> None:
        """Store what this app declares, if no manager has done so before: from now on its handlers get events, and new
        tasks of its queues have partition keys.

        The first `publish` does this by itself, and the first `enqueue` of an app with partitions, except within a
        transaction of SQLite.
        """
        self.ask(self.declare_once, limit=LIMIT, what="declaring")

    async def adeclare(self) -> None:
        """As `declare`, for async callers."""
        await self.aask(self.declare_once)

    # For the app's own parts.

    def event_data(self, name: str) -> "EventData | None":
        """The declared type of an event's data."""
        if name in self._event_types and name not in self._event_data:
            self._event_data[name] = self.event_data_of(name, self._event_types[name])
        return self._event_data.get(name)

    def scheduled_handler(self, name: str) -> Handler[Any, Any, Any] | None:
        """The handler of a schedule that this app declares."""
        scheduled = self._schedules.get(name)
        return None if scheduled is None else scheduled.handler

    async def require_declared(self, client: Client) -> None:
        """Refuse an event that would miss this app's own handlers, where `declare_once` cannot write."""
        if self._declared_by is client or not self._subscribed or not isinstance(client.store, Declarations):
            return
        if self.name not in {one.app for one in await client.store.declarations()}:
            raise InvalidInput(
                f'the event handlers of "{self.name}" are not stored yet',
                why="no manager has run, and nothing else can be written while your transaction is open",
                fix="call app.declare() once when the process starts; nothing was published",
            )
        self._declared_by = client

    async def declare_once(self, client: Client) -> None:
        """Let what this app declares count before its first manager has run, so that no event is lost and every task
        has its partition key."""
        if self._declared_by is client:
            return
        await client.introduce(self.describe())
        declared, store = replace(self.declared(), queues=self.queues_with_settings()), client.store
        if (declared.queues or self._subscribed or self._schedules) and isinstance(store, Declarations):
            await client.patiently(lambda: store.declare(declared))
        self._declared_by = client

    async def introduced(self, *handlers: str) -> Client:
        """The client, once the store knows these handlers, and how their queues divide tasks."""
        client = await super().introduced(*handlers)
        if self._declared_by is not client and self._divides():
            await self.declare_once(client)
        return client

    def _divides(self) -> bool:
        """Whether a queue has partitions, by code or settings."""
        if self._divided is None:
            self._divided = any(one.partitions is not None for one in self.queues_with_settings().values())
        return self._divided

    def _handler(self, function: Callable[..., Any], said: Mapping[str, Any]) -> Handler[Any, Any, Any]:
        """A new handler, or the one that stands below this decorator."""
        if not isinstance(function, Handler):
            return self._declaring(**said)(function)
        options = sorted(said.keys() - {"name"})
        if options or self.handlers.get(function.name) is not function:
            raise InvalidInput(
                f'"{function.name}" is declared by another decorator'
                + (f", and cannot get {listed(options)} here" if options else " of another app"),
                why="a handler has one set of options and one app",
                fix="give the options to the decorator below" if options else "use the decorators of one app",
            )
        return function


def refuse_missing(name: str, function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """A schedule must say all arguments that its function needs."""
    missing = sorted(required_parameters(function) - params.keys())
    if missing:
        raise InvalidInput(
            f'the schedule "{name}" does not say {listed(missing)}',
            why=f"{function.__name__} needs {'them' if missing[1:] else 'it'}, and a schedule has no caller",
            fix=f'say params={{"{missing[0]}": …}}, or give the parameter a default',
        )


def _text(cron: Any) -> str:
    if not isinstance(cron, str):
        raise InvalidInput(
            "this scheduled task does not say when",
            why="cron is text",
            fix='write @app.scheduled_task(cron="0 0 * * *")',
        )
    return cron


def _params(params: Any) -> dict[str, Any]:
    if not isinstance(params, Mapping):
        raise InvalidInput(
            f"params={params!r:.60} are not arguments by name",
            why="a schedule's tasks get them by name",
            fix='write params={"days": 7}',
        )
    return dict(params)


def _spec(scheduled: _Scheduled) -> ScheduleSpec:
    try:
        params = scheduled.handler.params.check(scheduled.params)
    except InvalidInput as error:
        raise InvalidInput(
            f'the params of the schedule "{scheduled.spec.name}" do not fit its task',
            why=error.why,
            fix="correct params=… in its decorator",
        ) from error
    return replace(scheduled.spec, params=params, priority=scheduled.handler.options.priority)


def _subscription(subscribed: _Subscribed) -> Subscription:
    handler = subscribed.handler
    return Subscription(
        handler=handler.name,
        pattern=subscribed.pattern,
        queue=handler.queue,
        parameter=subscribed.parameter,
        priority=handler.options.priority,
        ordered=subscribed.ordered,
        template=handler.lease.template if handler.lease else None,
    )


def _twice(what: str, name: str) -> InvalidInput:
    return InvalidInput(
        f'there are two {what}s named "{name}"', why="the second would replace the first", fix="declare it once"
    )
