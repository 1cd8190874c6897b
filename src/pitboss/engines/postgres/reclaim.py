"""Sweeping: claims that are lost, tasks held for a handler that is known by now, and counts to fold."""

from collections import Counter
from typing import NamedTuple

from pitboss.engines.postgres import failures
from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.locked_batches import LockedBatches
from pitboss.engines.postgres.order import LockedOrder
from pitboss.engines.postgres.returns import Return, Returns
from pitboss.engines.postgres.rows import error_text, names, numbers, texts
from pitboss.engines.postgres.script import Again, Ask, Row, Script, Statements, current
from pitboss.engines.postgres.settle import KEPT_RUNS
from pitboss.model.access import REMEMBERED_FOR
from pitboss.model.duration import Moment
from pitboss.model.member_health import STRIKES_KEPT
from pitboss.model.policy import MAX_CRASHES
from pitboss.model.session import Reclaimed
from pitboss.model.settlement import RAN_OUT, RAN_OUT_TOO_OFTEN
from pitboss.model.states import FINISHED, State

_AT_ONCE = 1000
_FOLDED_AT_ONCE = 50_000
# What a task gets whose claims ran out too often.
_RAN_OUT = {
    "most": MAX_CRASHES,
    "error": error_text(RAN_OUT),
    "fingerprint": RAN_OUT.fingerprint,
    "poison": RAN_OUT_TOO_OFTEN,
}


class Chores(NamedTuple):
    """What a sweep has to do. All but `plain` need locks before tasks are looked at."""

    orphans: bool
    leases: bool
    items: bool
    lanes: list[str]
    cancelling: list[str]
    plain: bool

    @property
    def any(self) -> bool:
        return any(self)


def find_chores(sql: Statements, now: Moment | None) -> Script[Chores]:
    (row,) = yield sql.ask("reclaim_chores", now, kept=STRIKES_KEPT, remembered=REMEMBERED_FOR, most=MAX_CRASHES)
    return Chores(*row)


def reclaim_plain(sql: Statements, limit: int, now: Moment | None) -> Script[Reclaimed]:
    ((lost, cancelled, failed, long, _),) = yield sql.ask("reclaim_lose", now, limit=limit, **_RAN_OUT)
    if long:
        yield sql.ask("attempt_forget", tasks=texts(long))
    ((released, _),) = yield sql.ask("held_release", now, handlers=None, limit=limit)
    yield from tidy_up(sql, now)
    # Whether there are more is known only by locking one more: a full sweep asks for another.
    more = bool(limit) and (lost + cancelled + failed >= limit or released >= limit)
    return Reclaimed(lost=lost, cancelled=cancelled, failed=failed, released=released, more=more)


def tidy_up(sql: Statements, now: Moment | None) -> Script[None]:
    yield fold(sql)
    yield sql.ask("partition_fold", limit=_FOLDED_AT_ONCE, lock=fold_lock(sql.schema))
    yield sql.ask("start_forget", now, limit=_AT_ONCE)
    yield sql.ask("session_forget", now)
    yield sql.ask("binding_forget", now, limit=_AT_ONCE, kept=STRIKES_KEPT)
    yield sql.ask("departed_forget", now, limit=_AT_ONCE)
    yield sql.ask("request_forget", now, limit=_AT_ONCE, remembered=REMEMBERED_FOR)


def fold(sql: Statements) -> Ask:
    """Fold changes of counts into the counts and the flows."""
    return sql.ask("count_fold", limit=_FOLDED_AT_ONCE, lock=fold_lock(sql.schema))


def release(sql: Statements, handlers: str, now: Moment | None) -> Script[None]:
    """Release held tasks of these handlers, in portions, so that no lock is held for long."""
    while True:
        ((released, _),) = yield sql.ask("held_release", now, handlers=handlers, limit=_AT_ONCE)
        if released < _AT_ONCE:
            return


def release_items(sql: Statements, handlers: str | None, limit: int, now: Moment | None) -> Script[int]:
    """As `release`, for items of batches, within a transaction: their new state depends on their batch."""
    found = yield sql.ask("held_list_items", now, handlers=handlers, limit=limit)
    if not found:
        return 0
    locked, counts = LockedBatches(sql, lanes=True), CountChanges()
    yield from locked.lock(Counter(batch for _, batch in found))
    moved = yield sql.ask("held_release_items", now, ids=texts([task for task, _ in found]), running=locked.running)
    for queue, state, batch in moved:
        counts.moved(queue, State.HELD, state, batch)
    yield from counts.write(sql)
    return len(moved)


def promote(sql: Statements, lanes: list[str], now: Moment | None) -> Script[None]:
    """Give the free slots of these lanes to their next batches, within a transaction."""
    moment = yield from current(sql, now)
    locked = LockedBatches(sql, lanes=True)
    yield sql.ask("lane_lock", names=names(lanes))
    for lane in sorted(lanes):
        yield from locked.promote(lane, moment)


def fold_lock(schema: str) -> int:
    """A number for the server's advisory locks, the same in every process."""
    return int.from_bytes(f"pitboss fold {schema}".encode()[-8:], signed=True)


def lose_bound(sql: Statements, limit: int, now: Moment | None, *, lanes: bool) -> Script[Reclaimed | Again]:
    """Reclaim claims that are lost and that `reclaim_plain` leaves out, and end leases past their time, within a
    transaction; `Again` if lanes must be locked too."""
    orphans = yield sql.ask("reclaim_orphans", now, limit=limit, most=MAX_CRASHES)
    leases = yield sql.ask("lease_list_over", now, limit=limit)
    batches, returns, counts = LockedBatches(sql, lanes=lanes), Returns(sql), CountChanges()
    if not (yield from batches.lock(Counter(batch for _, batch, *_ in orphans if batch is not None))):
        return Again()
    held = [Return(resource, since or 0) for _, _, resource, since, *_ in orphans if resource is not None]
    held += [Return(f"{pool}/{name}", since) for _, pool, name, since in leases]
    yield from returns.lock(held)
    yield from returns.read_rules(now)
    order, routes = LockedOrder(sql), list[Row]()
    yield from order.lock({row[0]: row[5] for row in orphans}, batches.completions())
    if any(row[6] for row in orphans):
        yield failures.routes(sql).into(routes)
    claims = {"ids": texts([row[0] for row in orphans]), "claims": numbers([row[4] for row in orphans])}
    moved = yield sql.ask("reclaim_lose_bound", returns.now, running=batches.running, **claims, **_RAN_OUT)
    ended: Counter[str] = Counter()
    for _, state, queue, batch, resource, since, _, capped, handler in moved:
        counts.moved(queue, State.RUNNING, state, batch, ring=capped, handler=handler, run="lost")
        if batch is not None:
            ended[batch] -= State(state) in FINISHED
        if resource is not None:
            yield from returns.take(Return(resource, since or 0))
    over = yield sql.ask("lease_end_over", returns.now, ids=texts([row[0] for row in leases]))
    for pool, name, since in over:
        yield from returns.take(Return(f"{pool}/{name}", since))
    long = [row[0] for row in moved if row[6] > KEPT_RUNS]
    if long:
        yield sql.ask("attempt_forget", tasks=texts(long))
    yield from returns.write(counts)
    yield from batches.changed(ended, returns.now)
    yield from order.advance(returns.now)
    yield from failures.follow(sql, [row[0] for row in moved if row[1] == State.FAILED], routes, returns.now)
    states = Counter(row[1] for row in moved)
    cancelled, failed = states[State.CANCELLED], states[State.FAILED]
    more = bool(limit) and (len(orphans) >= limit or len(leases) >= limit)
    lost = len(moved) - cancelled - failed
    return Reclaimed(lost=lost, cancelled=cancelled, failed=failed, leases=len(over), more=more)
