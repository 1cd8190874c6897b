"""Events: a name and data that become one task for each handler that subscribed to the name."""

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import msgspec

from pitboss.model.canonical import Json, to_json
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId
from pitboss.model.meta import EventMark, Meta, with_meta
from pitboss.model.task import NewTask
from pitboss.model.want_template import WantTemplate

EventId = str
ONE, REST = "*", "**"
_MAX_NAME = 128
_NAMES_KEPT = 1000
# The part of an id that only grows: the millisecond, the version, and the sequence within the millisecond.
_SEQUENCED = len("01900000-0000-7000")
# The first digit after them, as a UUID has it, by a random digit.
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_NAME = re.compile(r"[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*\Z")
_PATTERN = re.compile(r"(?:[A-Za-z0-9_:-]+|\*)(?:\.(?:[A-Za-z0-9_:-]+|\*))*(?:\.\*\*)?\Z|\*\*\Z")


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to publish. Handlers that keep the order get events with one `key` one at a time, in order. `trace` is
    the context of the span that published it (`model.meta`); its tasks are told of it."""

    id: EventId
    name: str
    data: Json = "{}"
    key: str | None = None
    by: str | None = None
    trace: dict[str, str] = {}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event as stored, with the handlers that it went to."""

    id: EventId
    name: str
    data: Json
    key: str | None = None
    by: str | None = None
    published_at: Moment = 0
    handlers: tuple[str, ...] = ()

    def task_ids(self) -> tuple[TaskId, ...]:
        """Their tasks, in the order of `handlers`."""
        return tuple(event_task_id(self.id, handler) for handler in self.handlers)


class Published(msgspec.Struct, frozen=True):
    """The answer to a publish. `created` False: an event with this id was published before, to these handlers."""

    id: EventId
    created: bool
    handlers: tuple[str, ...] = ()


class EventType(msgspec.Struct, frozen=True):
    """The JSON Schema that the data of an event must fit."""

    name: str
    schema: Json


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A handler that wants events. The data goes into its parameter `parameter`.

    In the pattern, `*` stands for one part of the name, and `**` at the end for one or more. `ordered`: events with one
    key are handled one at a time, in the order in which they were published.
    """

    handler: str
    pattern: str
    queue: str = "default"
    parameter: str = "event_data"
    priority: int = 0
    ordered: bool = False
    template: WantTemplate | None = None

    def task(self, event: NewEvent, meta: Json | None = None) -> NewTask:
        """`meta` is that of the event, if the caller has made it for several tasks."""
        params = f"{{{_quoted(self.parameter)}:{event.data}}}"
        ordered = self.ordered and event.key is not None
        return NewTask(
            id=event_task_id(event.id, self.handler),
            handler=self.handler,
            queue=self.queue,
            params=params,
            priority=self.priority,
            order_key=f"{self.handler}/{event.key}" if ordered else None,
            want=self.template.want(params) if self.template else None,
            meta=meta or _meta(event),
        )


class Subscribers:
    """Subscriptions by what they match, so that a publish looks only at a few."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._exact: dict[str, list[Subscription]] = {}
        self._wild: list[tuple[tuple[str, ...], Subscription]] = []
        self._found: dict[str, list[Subscription]] = {}
        for one in sorted(subscriptions, key=lambda one: (one.handler, one.pattern)):
            if ONE in one.pattern:
                self._wild.append((tuple(one.pattern.split(".")), one))
            else:
                self._exact.setdefault(one.pattern, []).append(one)

    def of(self, name: str) -> list[Subscription]:
        """Those that want this event, by handler; a handler that two patterns fit gets it once."""
        parts = tuple(name.split("."))
        found = [*self._exact.get(name, ()), *(one for pattern, one in self._wild if _fits(pattern, parts))]
        return sorted({one.handler: one for one in reversed(found)}.values(), key=lambda one: one.handler)

    def tasks(self, event: NewEvent) -> list[NewTask]:
        meta = _meta(event)
        return [one.task(event, meta) for one in self._wanting(event.name)]

    def _wanting(self, name: str) -> list[Subscription]:
        """As `of`, looked up once for each name that is published often."""
        if name not in self._found:
            if len(self._found) >= _NAMES_KEPT:
                self._found.clear()
            self._found[name] = self.of(name)
        return self._found[name]


_quoted = lru_cache(maxsize=256)(to_json)
_list = msgspec.json.Decoder(list[Subscription])


@lru_cache(maxsize=16)
def subscribers(texts: tuple[Json, ...]) -> Subscribers:
    """Of stored lists of subscriptions."""
    return Subscribers(one for text in texts for one in _list.decode(text))


def event_task_id(event: EventId, handler: str) -> TaskId:
    """It begins as the event's id does, with the sequence within the millisecond: a line with an order key is sorted by
    id, and events of one millisecond must keep their order too."""
    # Every task of a publish needs one: this takes half as long as `derived_id`.
    bits = blake2b(f"{event}\0{handler}".encode(), digest_size=8).hexdigest()
    return f"{event[:_SEQUENCED]}-{_VARIANTS[bits[0]]}{bits[1:4]}-{bits[4:]}"


def published(event: NewEvent, now: Moment, handlers: Iterable[str]) -> Event:
    """The event as it is stored."""
    return Event(
        id=event.id,
        name=event.name,
        data=event.data,
        key=event.key,
        by=event.by,
        published_at=now,
        handlers=tuple(handlers),
    )


def _meta(event: NewEvent) -> Json:
    return with_meta(None, Meta(event=EventMark(event.id, event.name, event.key), trace=event.trace))


def checked_event_name(name: str) -> str:
    """The name itself: parts with dots between them."""
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.match(name):
        raise InvalidInput(
            f"{name!r:.80} cannot name an event",
            why="a name is made of parts with dots between them, each of letters, digits and _ : -",
            fix='write it like "user.signup"',
        )
    return name


def checked_pattern(pattern: str) -> str:
    """The pattern itself: a name in which parts may be `*`, and the last one `**`."""
    if not isinstance(pattern, str) or len(pattern) > _MAX_NAME or not _PATTERN.match(pattern):
        raise InvalidInput(
            f"{pattern!r:.80} is not a name or pattern of events",
            why="* stands for one whole part between dots, and ** at the end for one or more",
            fix='write it like "user.signup", "user.*", "*.created" or "orders.**"',
        )
    return pattern


def _fits(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    if pattern and pattern[-1] == REST:
        return len(parts) >= len(pattern) and _fits(pattern[:-1], parts[: len(pattern) - 1])
    return len(pattern) == len(parts) and all(one in (ONE, part) for one, part in zip(pattern, parts, strict=True))
