"""Sweeping: what dead sessions held, what waits for a handler that is known by now, and figures to fold."""

from collections import Counter
from typing import NamedTuple

from pitboss.engines.postgres.control import current
from pitboss.engines.postgres.gate import Gate
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Script, Statements
from pitboss.engines.postgres.tally import Tally
from pitboss.model.duration import Moment
from pitboss.model.leasing import STRIKES_KEPT
from pitboss.model.session import Reclaimed
from pitboss.model.states import State

_AT_ONCE = 1000
_FOLDED_AT_ONCE = 50_000


class Chores(NamedTuple):
    """What a sweep has to lock something for before it looks at tasks; `plain`: there is something beside that."""

    orphans: bool
    leases: bool
    items: bool
    lanes: list[str]
    cancelling: list[str]
    plain: bool

    @property
    def any(self) -> bool:
        return any(self)


def chores(say: Statements, now: Moment | None) -> Script[Chores]:
    (row,) = yield say.ask("reclaim_chores", now, kept=STRIKES_KEPT)
    return Chores(*row)


def reclaim(say: Statements, limit: int, now: Moment | None) -> Script[Reclaimed]:
    ((lost, cancelled, long, _),) = yield say.ask("reclaim_lose", now, limit=limit)
    if long:
        yield say.ask("attempt_forget", tasks=texts(long))
    ((released, _),) = yield say.ask("held_release", now, handlers=None, limit=limit)
    yield from tidy_up(say, now)
    # One more than the limit would be known only by locking it: a full sweep asks for another.
    more = bool(limit) and (lost + cancelled >= limit or released >= limit)
    return Reclaimed(lost=lost, cancelled=cancelled, released=released, more=more)


def tidy_up(say: Statements, now: Moment | None) -> Script[None]:
    yield say.ask("count_fold", limit=_FOLDED_AT_ONCE, lock=fold_lock(say.schema))
    yield say.ask("start_forget", now, limit=_AT_ONCE)
    yield say.ask("session_forget", now)
    yield say.ask("binding_forget", now, limit=_AT_ONCE, kept=STRIKES_KEPT)


def release(say: Statements, handlers: str, now: Moment | None) -> Script[None]:
    """Held tasks of these handlers may run; in bites, so that no lock is held for long."""
    while True:
        ((released, _),) = yield say.ask("held_release", now, handlers=handlers, limit=_AT_ONCE)
        if released < _AT_ONCE:
            return


def release_items(say: Statements, handlers: str | None, limit: int, now: Moment | None) -> Script[int]:
    """As `release`, for items of batches, within a transaction: where they go depends on their batch."""
    found = yield say.ask("held_list_items", now, handlers=handlers, limit=limit)
    if not found:
        return 0
    gate, tally = Gate(say, lanes=True), Tally()
    yield from gate.lock(Counter(batch for _, batch in found))
    moved = yield say.ask("held_release_items", now, ids=texts([task for task, _ in found]), running=gate.running)
    for queue, state, batch in moved:
        tally.moved(queue, State.HELD, state, batch)
    yield from tally.write(say)
    return len(moved)


def promote(say: Statements, lanes: list[str], now: Moment | None) -> Script[None]:
    """Let the next batches of these lanes have their free slots, within a transaction."""
    moment = yield from current(say, now)
    gate = Gate(say, lanes=True)
    yield say.ask("lane_lock", names=names(lanes))
    for lane in sorted(lanes):
        yield from gate.promote(lane, moment)


def fold_lock(schema: str) -> int:
    """A number for the server's advisory locks, the same in every process."""
    return int.from_bytes(f"pitboss fold {schema}".encode()[-8:], signed=True)
