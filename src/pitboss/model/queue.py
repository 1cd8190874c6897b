"""A queue's settings and figures, a handler as registered, and the check on names."""

import re
from collections.abc import Iterable

import msgspec

from pitboss.model.canonical import from_json
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import InvalidInput, QueueFull
from pitboss.model.limits import Window
from pitboss.model.partition import Partitioning
from pitboss.model.states import WAITING, State

# The settings of a queue that an operator can set above what is declared.
LIMITS = ("capacity", "rate", "max_per_key")
# The key of a handler's `about` that says how long a task usually takes, in microseconds.
USUAL = "usual"
SYNC = "sync"
# In `HandlerInfo.about`: other queues of a task type, see `HandlerInfo.queues`.
OTHER_QUEUES = "other_queues"
# Queues and handlers of Pitboss itself begin so.
RESERVED = "pitboss."
_RESERVED_KINDS = frozenset({"queue", "task", "task type", "queue, task or pool"})
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}\Z")


class QueueSettings(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What code and settings declare of a queue. `retention` are ages by state; states without one have the default.
    `max_per_key` is how many tasks of one partition key may run at once."""

    capacity: int | None = None
    rate: tuple[Window, ...] = ()
    retention: dict[State, Span] = {}
    partitions: Partitioning | None = None
    max_per_key: int | None = None


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as stored, with the number of its tasks by state.

    `resources` names the resource pool: each of its tasks holds a member of it while it runs. `opens_at` is when its
    rate allows the next start; None: now. `declared` is what an app declares; `limited` names the settings that an
    operator set above that (`LIMITS`), until they are withdrawn. `partitions` is always as declared.
    """

    name: str
    paused: bool = False
    paused_by: str | None = None
    paused_at: Moment | None = None
    paused_reason: str | None = None
    capacity: int | None = None
    rate: tuple[Window, ...] = ()
    resources: str | None = None
    opens_at: Moment | None = None
    declared: QueueSettings | None = None
    limited: tuple[str, ...] = ()
    partitions: Partitioning | None = None
    max_per_key: int | None = None
    counts: dict[State, int] = {}

    @property
    def waiting(self) -> int:
        return sum(self.counts.get(state, 0) for state in WAITING)


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator changes in a queue; fields that are UNSET stay as they are. `withdraw` names settings that go
    back to what is declared. `reason` says why it is paused."""

    paused: bool | msgspec.UnsetType = msgspec.UNSET
    by: str | None = None
    reason: str | None = None
    capacity: int | msgspec.UnsetType | None = msgspec.UNSET
    rate: tuple[Window, ...] | msgspec.UnsetType = msgspec.UNSET
    max_per_key: int | msgspec.UnsetType | None = msgspec.UNSET
    withdraw: tuple[str, ...] = ()


class HandlerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A handler as data, so that other processes can enqueue by name and have their params checked.

    `resources` names the resource pool that its tasks need a member of. `remote`: it is a task type, whose tasks are
    run by remote workers. `about` is a JSON object with what else is known of it. The store sets `number`, which no
    other handler has, `created_at`, and `updated_at`, the last time that a registration changed something.
    """

    name: str
    queue: str = "default"
    policy: str = "{}"
    schema: str = "{}"
    resources: str | None = None
    remote: bool = False
    about: str = "{}"
    number: int = 0
    created_at: Moment = 0
    updated_at: Moment = 0

    @property
    def usual(self) -> Span | None:
        """How long a task usually takes, if that is declared."""
        found = from_json(self.about).get(USUAL)
        return found if isinstance(found, int) else None

    @property
    def sync(self) -> bool:
        """Whether it is a plain `def`, which nothing can interrupt."""
        return bool(from_json(self.about).get(SYNC))

    @property
    def queues(self) -> tuple[str, ...]:
        """Where remote workers look for its tasks: its queue, and those in which tasks were put before it was known."""
        return self.queue, *from_json(self.about).get(OTHER_QUEUES, ())

    def registered(self, before: "HandlerInfo | None", number: int, now: Moment) -> "HandlerInfo":
        """As it is stored: `number` is for a new one."""
        if before is None:
            return msgspec.structs.replace(self, number=number, created_at=now, updated_at=now)
        same = msgspec.structs.replace(
            self, number=before.number, created_at=before.created_at, updated_at=before.updated_at
        )
        return same if same == before else msgspec.structs.replace(same, updated_at=now)


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a bulk operation. `refused` names tasks that could not be changed; `more` asks for a repeat."""

    changed: int = 0
    asked: int = 0
    refused: tuple[str, ...] = ()
    more: bool = False


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the desired state: its JSON value, and the version of its last change."""

    key: str
    value: str | None
    version: int
    by: str | None = None


def changed_queue(queue: Queue, change: QueueChange, now: Moment) -> Queue:
    """The queue with that change. Pausing it again replaces who paused it, when and why."""
    if change.paused is not msgspec.UNSET:
        by, at, why = (change.by, now, change.reason or None) if change.paused else (None, None, None)
        queue = msgspec.structs.replace(queue, paused=change.paused, paused_by=by, paused_at=at, paused_reason=why)
    set_now = {name: value for name in LIMITS if (value := getattr(change, name)) is not msgspec.UNSET}
    limited = (set(queue.limited) | set_now.keys()) - set(change.withdraw)
    queue = msgspec.structs.replace(queue, **set_now, limited=tuple(sorted(limited)))
    return declared_queue(queue, queue.declared) if change.withdraw else queue


def declared_queue(queue: Queue, declared: QueueSettings | None) -> Queue:
    """The queue with these declarations; None withdraws them. What an operator set stays."""
    settings = declared or QueueSettings()
    free = {name: getattr(settings, name) for name in LIMITS if name not in queue.limited}
    return msgspec.structs.replace(queue, **free, declared=declared, partitions=settings.partitions)


def remote_queues(handlers: Iterable[HandlerInfo]) -> set[str]:
    """The queues of which all handlers are remote: a slot without named queues leaves them out."""
    remote, local = set[str](), set[str]()
    for handler in handlers:
        (remote if handler.remote else local).add(handler.queue)
    return remote - local


def check_capacity(queue: Queue, waiting: int, new: int) -> None:
    """Refuse new tasks that do not fit beside those that wait."""
    if queue.capacity is not None and waiting + new > queue.capacity:
        raise QueueFull(queue.name, queue.capacity, waiting, new)


def is_reserved(name: str) -> bool:
    """Whether a queue or handler belongs to Pitboss itself: worker pools and remote workers do not see it."""
    return name.startswith(RESERVED)


def checked_name(name: str, what: str, *, reserved: bool = False) -> str:
    """The name itself, if it is a valid name of a queue, handler, tag and so on. `reserved`: also one of Pitboss."""
    if is_reserved(name) and what in _RESERVED_KINDS and not reserved:
        raise InvalidInput(
            f'"{name:.80}" cannot name a {what}',
            why=f'names that begin with "{RESERVED}" belong to Pitboss itself',
            fix="choose another name",
        )
    if not _NAME.match(name):
        raise InvalidInput(
            f"{name!r:.80} cannot name a {what}",
            why="names are 1 to 128 letters, digits and _ . : - and begin with a letter, digit or _",
            fix="choose a name of that form",
        )
    return name
