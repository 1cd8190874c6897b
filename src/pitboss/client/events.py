"""Publishing events, reading their log, and sending one to its handlers again."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from pitboss.client.client import Client
from pitboss.client.schema import compiled
from pitboss.engines.capabilities import declarations_of, events_of
from pitboss.model.access import Remembered
from pitboss.model.canonical import MAX_PARAMS_BYTES, Json, from_json, to_json
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import InvalidInput, NotFound, Unsupported
from pitboss.model.event import (
    Event,
    EventId,
    EventType,
    NewEvent,
    Published,
    Subscribers,
    Subscription,
    checked_event_name,
    event_task_id,
)
from pitboss.model.ids import TaskId
from pitboss.model.task import Placed, Task
from pitboss.telemetry.traces import carried

_MAX_KEY = 512
_FAULTS = 5
# For so long the declarations that were read are believed.
_BELIEVED = 5 * SECOND


class EventWithTasks(NamedTuple):
    """An event, and the tasks of its handlers in the order of `event.handlers`; None: it is pruned."""

    event: Event
    tasks: list[Task | None]


def new_event(
    event_id: EventId, name: str, data: object = UNSET, *, key: str | None = None, by: str | None = None
) -> NewEvent:
    """An event to publish, checked. Data is anything that has a JSON form."""
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= _MAX_KEY and "\0" not in key):
        raise InvalidInput(
            f"key={key!r:.60} cannot be the key of an event",
            why=f"a key is text of 1 to {_MAX_KEY} characters",
            fix="use what the order is kept for, such as a customer's id",
        )
    text = to_json({} if data is UNSET else data, what=f"data of {name}", max_bytes=MAX_PARAMS_BYTES - 200)
    return NewEvent(id=event_id, name=checked_event_name(name), data=text, key=key, by=by, trace=carried())


class EventClient:
    """The events of one store. `new_id` makes ids of events and tasks."""

    def __init__(self, client: Client, new_id: Callable[[], TaskId]) -> None:
        self._client, self._store, self._new_id = client, client.store, new_id
        self._events = events_of(client.store)
        self._types: dict[str, EventType] = {}
        self._read_at: Moment | None = None

    async def publish(
        self,
        name: str,
        data: object = UNSET,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
        event_id: EventId | None = None,
    ) -> Published:
        """Store the event and a task for each of its handlers; when this returns, they survive anything.

        With an `idempotency_key`, a repetition within a day publishes nothing more; with other data it is refused.
        """
        event = new_event(event_id or self._new_id(), name, data, key=key, by=by)
        if idempotency_key is not None:
            if not 0 < len(idempotency_key) <= _MAX_KEY:
                raise InvalidInput(
                    f"{idempotency_key!r:.60} cannot be an idempotency key",
                    why=f"it is text of 1 to {_MAX_KEY} characters",
                    fix="use what makes the event unique, such as an order's number, or leave it out",
                )
            event = replace(event, id=await self._id_of(event, idempotency_key))
        return (await self.publish_events([event]))[0]

    async def publish_events(self, events: Sequence[NewEvent]) -> list[Published]:
        """Many at once: all of them, or none."""
        await self.check(events)
        return await self._client.patiently(lambda: self._events.publish(events))

    async def check(self, events: Iterable[NewEvent]) -> None:
        """Refuse data that does not fit the type that an app declares for the event."""
        await self._read_types()
        for event in events:
            kind = self._types.get(event.name)
            if kind is not None:
                _check_data(kind, event.data)

    async def find(self, *, name: str | None = None, limit: int = 50, before: str | None = None) -> list[Event]:
        """The newest first."""
        return await self._events.events(name=name, limit=limit, before=before)

    async def get(self, event_id: EventId) -> EventWithTasks:
        found = await self._events.events([event_id])
        if not found:
            raise NotFound(
                f"event {event_id} is not in the log",
                why="it was never published, or it is older than the log is kept ([retention] events)",
                fix="pitboss events list shows the newest ones",
            )
        return EventWithTasks(found[0], await self._store.get(found[0].task_ids()))

    async def replay(self, event_id: EventId, handlers: Sequence[str] | None = None) -> list[tuple[str, Placed]]:
        """Put new tasks for the handlers that want the event now, or for these of them."""
        event = (await self.get(event_id)).event
        wanting = Subscribers(await self.subscriptions()).of(event.name)
        unknown = sorted(set(handlers or ()) - {one.handler for one in wanting})
        if unknown:
            raise NotFound(
                f"{', '.join(unknown)} does not subscribe to {event.name}",
                why=f"its handlers are {', '.join(one.handler for one in wanting) or 'none'}",
                fix="name one of these, or leave it out for all",
            )
        chosen = [one for one in wanting if handlers is None or one.handler in handlers]
        copy = NewEvent(id=event.id, name=event.name, data=event.data, key=event.key)
        tasks = [replace(one.task(copy), id=self._new_id()) for one in chosen]
        placed = await self._client.put(tasks) if tasks else []
        return list(zip((one.handler for one in chosen), placed, strict=True))

    async def subscriptions(self) -> list[Subscription]:
        """Of all apps."""
        declarations = await declarations_of(self._store).declarations()
        return [one for declared in declarations for one in declared.subscriptions]

    async def _read_types(self) -> None:
        now = self._client.clock.now()
        if self._read_at is None or now - self._read_at > _BELIEVED:
            declarations = await declarations_of(self._store).declarations()
            self._types = {one.name: one for declared in declarations for one in declared.events}
            self._read_at = now

    async def _id_of(self, event: NewEvent, idempotency_key: str) -> EventId:
        """The id under which the key was used first. It is stored before the event, so that a repetition finds it."""
        remember = getattr(self._store, "remember", None)
        if remember is None:
            raise Unsupported(
                "this store remembers no idempotency keys", why="it has no table for them", fix="leave the key out"
            )
        digest = sha256(f"{event.key}\0{event.data}".encode()).hexdigest()
        known: Remembered = await remember(f"event/{event.name}/{idempotency_key}", digest, [event.id])
        if known.body != digest:
            raise InvalidInput(
                f'the idempotency key "{idempotency_key:.80}" was used for an event "{event.name}" with other data',
                why="within a day, a key stands for one event with one set of data",
                fix="use another key for other data; nothing was published",
            )
        return known.ids[0]


def task_ids(published: Published) -> list[TaskId]:
    """The tasks of its handlers."""
    return [event_task_id(published.id, handler) for handler in published.handlers]


def _check_data(kind: EventType, data: Json) -> None:
    validator: Any = compiled(from_json(kind.schema))
    value = from_json(data)
    if validator.is_valid(value):
        return
    faults = islice(validator.iter_errors(value), _FAULTS)
    told = [f"{'.'.join(map(str, error.instance_path)) or 'data':.200}: {error.message:.300}" for error in faults]
    raise InvalidInput(
        f'the data does not fit the event "{kind.name}"',
        why="; ".join(told),
        fix="send what the event's type asks for; nothing was published",
    )
