"""A manager's (or remote worker's) life in the store, and the store's answers to it."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Literal, TypeVar

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Shortage
from pitboss.model.task import Claim, Token

T = TypeVar("T")
DEFAULT_TTL: Span = 15_000_000
# How long a dead session is still shown.
SHOWN_FOR: Span = 3600 * SECOND


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The process that opens a session. Host, boot id and pid let a successor on the host prove it dead at once.

    A manager's boot id also has the moment of the boot at which its process started.
    """

    host: str
    boot_id: str = ""
    pid: int = 0
    kind: str = "manager"
    handlers: tuple[str, ...] = ()
    ttl: Span = DEFAULT_TTL


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session. `number` grows and is never used again."""

    number: int
    info: SessionInfo
    opened_at: Moment
    expires_at: Moment
    ended: bool = False
    snapshot: Json | None = None

    def alive(self, now: Moment) -> bool:
        return not self.ended and self.expires_at > now

    def overdue(self, now: Moment) -> Span:
        """How long it has not been renewed, if that is more than half of its life; else 0. A process renews it every
        third: it is probably gone."""
        silent = now - (self.expires_at - self.info.ttl)
        return silent if silent * 2 > self.info.ttl else 0

    def shown(self, now: Moment) -> bool:
        return self.expires_at + SHOWN_FOR > now

    def renewed(self, now: Moment, snapshot: Json | None) -> "Session":
        """Alive for its time to live from now on. None keeps the snapshot."""
        kept = self.snapshot if snapshot is None else snapshot
        return msgspec.structs.replace(self, expires_at=now + self.info.ttl, snapshot=kept)

    def closed(self, now: Moment) -> "Session":
        """Over from now on, unless it was over before."""
        return msgspec.structs.replace(self, ended=True, expires_at=min(self.expires_at, now))


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat. If it is not alive, the session is over: stop everything."""

    alive: bool
    expires_at: Moment = 0
    cancels: tuple[tuple[TaskId, Token], ...] = ()
    desired: int = 0


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """The session that leads, and its host, under a term that was never used before. `mine`: it asked itself."""

    term: int
    session: int
    host: str
    mine: bool = False


def lead_of(leader: Session | None, term: int, now: Moment) -> Lead | None:
    """Who leads now: the session that took the lead under the newest term, while it is alive."""
    if leader is None or not leader.alive(now):
        return None
    return Lead(term=term, session=leader.number, host=leader.info.host)


def known_handlers(sessions: Iterable[Session], handlers: Iterable[HandlerInfo], now: Moment) -> set[str]:
    """The handlers that some live session can run, and those of remote workers, which have no session."""
    live = {handler for session in sessions if session.alive(now) for handler in session.info.handlers}
    return live | {handler.name for handler in handlers if handler.remote}


class Order(msgspec.Struct, frozen=True, array_like=True):
    """Another order than priority and id, for the first `ORDERED` pending tasks of a slot."""

    field: Literal["priority", "created_at", "id", "attempts"]
    descending: bool = False

    def apply(self, tasks: Iterable[T]) -> list[T]:
        """The tasks, or what an engine has read of them, in this order; those with the same value in the order in
        which they came."""
        return sorted(tasks, key=attrgetter(self.field), reverse=self.descending)


# How many pending tasks a claim in another order looks at.
ORDERED = 1000


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Room for work: `free` tasks can start now, `ahead` more may wait in the manager's buffer.

    `handlers`: only tasks of these handlers; others stay as they are. `lasts` makes claims of remote workers: they live
    by a time limit of their own, and are recorded with the `worker`. `repeat` is a key under which the same claims are
    found again, if the answer was lost. `number` is that of the worker's slot in its pool, for queues with partitions.
    """

    free: int
    ahead: int = 0
    queues: tuple[str, ...] | None = None
    pool: str = "default"
    worker: str = ""
    number: int | None = None
    handlers: tuple[str, ...] | None = None
    order: Order | None = None
    lasts: Span | None = None
    repeat: str | None = None


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a session can start. `handlers` None: every handler."""

    session: int
    slots: tuple[Slot, ...]
    handlers: frozenset[str] | None = None


class Claimed(msgspec.Struct, frozen=True):
    """The claims, in the order in which they should start, and when there may be more without a ring.

    `shortages` names the pools that had no member for a waiting task. `partitioned`: a queue of the request has
    partitions.
    """

    claims: list[Claim]
    next_due: Moment | None = None
    shortages: tuple[Shortage, ...] = ()
    partitioned: bool = False


class Reclaimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep repaired. `failed`: their claims ran out too often. `more`: the limit cut it short."""

    lost: int = 0
    cancelled: int = 0
    failed: int = 0
    released: int = 0
    leases: int = 0
    more: bool = False
