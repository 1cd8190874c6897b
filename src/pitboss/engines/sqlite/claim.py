"""Giving out tasks. The usual case, one queue whose tasks all fit, is one read and one write; the rest is sifted.

Slots that want the same are filled as one: many remote workers ask in one request.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, groupby, islice, repeat
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.batch_lifecycle import conclude, draw
from pitboss.engines.sqlite.claim_rows import (
    ClaimedRows,
    Granted,
    PendingRow,
    RankedRow,
    pending_rows,
    ranked_rows,
    running_rows,
)
from pitboss.engines.sqlite.failures import follow
from pitboss.engines.sqlite.grants import Grants
from pitboss.engines.sqlite.open_queue import OpenQueue, open_queues
from pitboss.engines.sqlite.order import release_next
from pitboss.engines.sqlite.rows import names_of, want_of
from pitboss.model.errors import SessionLost
from pitboss.model.picking import leased
from pitboss.model.resource import Shortage
from pitboss.model.session import ORDERED, ClaimRequest, Order, Slot

# Rows per read: params may be a mebibyte each, and one text must stay below SQLite's limit of a gigabyte.
_AT_ONCE = 250
# Bounds on what one claim does besides claiming; the next claim goes on.
_SET_ASIDE_AT_ONCE = 1000
_BEFORE_ALL = (-(2**63), "")
# Values of a row of `claim_take_each`.
_WIDTH = 6


class _Sifted:
    """The pending tasks that a claim looked at: to take, past their expiry, of a handler that no session knows."""

    def __init__(self) -> None:
        self.taken: list[PendingRow] = []
        self.expired: list[PendingRow] = []
        self.unknown: list[PendingRow] = []
        self.cut = False


class _Group:
    """Slots that want the same, filled as one: the tasks go to them in order.

    `takers` has the slot of each task to come. `limited`: claims with a time limit of their own are among them.
    """

    __slots__ = ("ahead", "free", "handlers", "limited", "order", "queues", "takers")
    takers: Iterator[Slot]

    def __init__(self, slots: Sequence[Slot]) -> None:
        first = slots[0]
        self.queues, self.order, self.free, self.ahead = first.queues, first.order, first.free, first.ahead
        self.handlers = None if first.handlers is None else json_list(first.handlers)
        self.limited = first.lasts is not None
        self.takers = repeat(first)
        if len(slots) > 1:
            self.free = sum(slot.free for slot in slots)
            self.limited = any(slot.lasts is not None for slot in slots)
            self.takers = chain.from_iterable(repeat(slot, slot.free) for slot in slots)


class _Round:
    """One claim while it is made."""

    def __init__(self, act: Act, request: ClaimRequest, queues: dict[str, OpenQueue], wanted: int) -> None:
        self.act, self.request, self.queues, self._wanted = act, request, queues, wanted
        self.granted: Granted = {}
        self._grants: Grants | None = None
        self._others: set[str] | None = None

    @property
    def others(self) -> set[str]:
        """The handlers that only other sessions and remote workers run: their tasks are passed by."""
        if self._others is None:
            rows: Iterable[Any] = (
                () if self.request.handlers is None else self.act.rows("handler_list_live", self.act.now)
            )
            self._others = {row[0] for row in rows}.difference(self.request.handlers or ())
        return self._others

    @property
    def grants(self) -> Grants:
        if self._grants is None:
            self._grants = Grants(self.act, self._wanted)
        return self._grants

    def grant(self, one: PendingRow, queue: OpenQueue, pool: str) -> bool:
        """Give the task a member; False if there is none for it."""
        grants = self.grants.of(pool)
        number = grants.grant(want_of(one.want), names_of(one.tried))
        if number is None:
            queue.no_members = grants.has_none()
            return False
        members = grants.members
        self.granted[one.row] = (number, leased(members.known[number], members.rules, self.act.now))
        return True

    def shortages(self) -> tuple[Shortage, ...]:
        """Write the members, and say why tasks went without one."""
        if self._grants is None:
            return ()
        self._grants.write()
        return tuple(self._grants.shortages())


def claim(act: Act, request: ClaimRequest) -> ClaimedRows:
    """As the contract says."""
    row = act.one("claim_begin", request.session, act.now)
    if row is None:
        raise SessionLost(request.session)
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    queues, again = _opened(act, request.slots, wanted, batches=bool(row[0]))
    this = _Round(act, request, queues, wanted)
    slots, cut = _filled(this)
    again = again or cut
    shortages = this.shortages()
    moments = [act.now] if again else []
    moments += [short.until for short in shortages if short.until is not None]
    moments += [moment for queue in queues.values() if (moment := queue.next_moment(act)) is not None]
    moments += _put_for_later(act, request.slots) if act.touched else []
    return ClaimedRows(request, act.now, slots, this.granted, min(moments, default=None), shortages)


def _put_for_later(act: Act, slots: Sequence[Slot]) -> list[int]:
    """A batch whose last item expired may have put a task that is due later."""
    conclude(act)
    later = (queue.next_scheduled(act) for queue in open_queues(act, slots).values() if queue.scheduled)
    return [moment for moment in later if moment is not None]


def _opened(act: Act, slots: Sequence[Slot], wanted: int, *, batches: bool) -> tuple[dict[str, OpenQueue], bool]:
    """The queues with all tasks that may start now, and whether there may be more at once."""
    queues, again = open_queues(act, slots), False
    for queue in queues.values():
        queue.release_due(act, wanted, batches=batches)
    if batches:
        again = draw(act, slots)
        queues = open_queues(act, slots)
        for queue in queues.values():
            queue.release_due(act, wanted, batches=True)
    for queue in queues.values():
        queue.measure_room(act)
    return queues, again


def _filled(this: _Round) -> tuple[list[list[PendingRow]], bool]:
    """The tasks for each slot, and whether a bound cut the look short."""
    slots = this.request.slots
    if len(slots) == 1 and slots[0].repeat is None:
        found, cut = _fill(this, _Group(slots))
        return [found], cut
    filled: list[list[PendingRow]] = [[] for _ in slots]
    keys = [slot.repeat for slot in slots if slot.repeat is not None]
    repeated = len(set(keys)) < len(keys)
    given, again = _given_again(this.act, keys), False
    for alike in _alike(slots, apart=repeated):
        if repeated:
            # A slot before this one may have the same key.
            given = _given_again(this.act, keys)
        asking = [index for index in alike if slots[index].repeat not in given] if given else alike
        for index in alike if given else ():
            filled[index] = given.get(slots[index].repeat, [])
        if asking:
            found, cut = _fill(this, _Group([slots[index] for index in asking]))
            _spread(found, slots, asking, filled)
            again = again or cut
    return filled, again


def _alike(slots: Sequence[Slot], *, apart: bool) -> list[list[int]]:
    """The positions of neighbouring slots that want the same, except how many and for whom."""
    if apart:
        return [[index] for index in range(len(slots))]
    groups = groupby(range(len(slots)), key=lambda index: _wanted_by(slots[index], index))
    return [list(group) for _, group in groups]


def _wanted_by(slot: Slot, index: int) -> object:
    return index if slot.ahead or slot.order is not None else (slot.queues, slot.handlers)


def _spread(
    found: list[PendingRow], slots: Sequence[Slot], asking: Sequence[int], filled: list[list[PendingRow]]
) -> None:
    if len(asking) == 1:
        filled[asking[0]] = found
        return
    left = iter(found)
    for index in asking:
        filled[index] = list(islice(left, slots[index].free))


def _given_again(act: Act, keys: Sequence[str]) -> dict[str | None, list[PendingRow]]:
    """The claims that still run under these keys: their answer was lost."""
    given: dict[str | None, list[PendingRow]] = {}
    rows = act.decoded("claim_again", running_rows, json_list(keys), act.now) if keys else []
    for one in sorted(rows, key=lambda one: one.id):
        given.setdefault(one.claim_key, []).append(one)
    return given


def _fill(this: _Round, group: _Group) -> tuple[list[PendingRow], bool]:
    """The tasks for slots that want the same, and whether a bound cut the look short."""
    if group.queues is None:
        full = [queue for queue in this.queues.values() if queue.may_give and not queue.remote]
    else:
        names = dict.fromkeys(group.queues)
        full = [queue for name in names if (queue := this.queues.get(name)) is not None and queue.may_give]
    if not full or group.free + group.ahead <= 0:
        return [], False
    plain = len(full) == 1 and not full[0].rate and full[0].pool is None and group.order is None
    taken, done = _take_in_order(this, group, full[0]) if plain else ([], False)
    if done:
        return taken, False
    sifted = _sift(this, group, full, len(taken))
    _set_aside(this, sifted)
    _take(this, group, sifted.taken)
    return taken + sifted.taken, sifted.cut


def _take_in_order(this: _Round, group: _Group, queue: OpenQueue) -> tuple[list[PendingRow], bool]:
    """Take the first tasks of the only queue as long as all of them fit; False if one needs a closer look."""
    taken: list[PendingRow] = []
    while queue.pending and (left := group.free + group.ahead - len(taken)):
        size = min(_AT_ONCE, left)
        portion = _first(this.act, group, queue, size)
        if not _all_fit(portion, group, this.request, this.act.now, len(taken)):
            return taken, False
        _take(this, group, portion)
        taken += portion
        if len(portion) < size:
            break
    return taken, True


def _first(act: Act, group: _Group, queue: OpenQueue, most: int) -> list[PendingRow]:
    if group.handlers is None:
        return act.decoded("claim_next", pending_rows, queue.name, most)
    return act.decoded("claim_next_of", pending_rows, queue.name, group.handlers, act.now, most)


def _all_fit(portion: list[PendingRow], group: _Group, request: ClaimRequest, now: int, before: int) -> bool:
    handlers = request.handlers
    return all(
        (handlers is None or one.handler in handlers) and (one.expires_at is None or one.expires_at > now)
        for one in portion
    ) and not any(one.losses for one in islice(portion, max(0, group.free - before), None))


def _sift(this: _Round, group: _Group, queues: Sequence[OpenQueue], before: int) -> _Sifted:
    """Go through the pending tasks of all queues in their common order and decide each; no task is written yet."""
    sifted, handlers, now = _Sifted(), this.request.handlers, this.act.now
    for one in _pending(this, group, queues):
        claimed = before + len(sifted.taken)
        if claimed >= group.free + group.ahead:
            break
        if len(sifted.expired) + len(sifted.unknown) >= _SET_ASIDE_AT_ONCE:
            sifted.cut = True
            break
        if one.expires_at is not None and one.expires_at <= now:
            sifted.expired.append(one)
        elif handlers is not None and one.handler not in handlers:
            if one.handler not in this.others:
                sifted.unknown.append(one)
        elif _may_take(this, one, ahead=claimed >= group.free):
            sifted.taken.append(one)
        else:
            this.queues[one.queue].passed += 1
    return sifted


def _may_take(this: _Round, one: PendingRow, *, ahead: bool) -> bool:
    queue = this.queues[one.queue]
    if queue.pool is not None and (ahead or queue.no_members):
        queue.skip_rest()
        return False
    if queue.room == 0 or (ahead and (queue.rate or one.losses)):
        return False
    if queue.pool is not None and not this.grant(one, queue, queue.pool):
        return False
    if queue.room is not None:
        queue.room -= 1
    return True


def _pending(this: _Round, group: _Group, queues: Sequence[OpenQueue]) -> Iterator[PendingRow]:
    """Pending tasks of the queues as they should run, of the wanted handlers."""
    if group.order is not None:
        return _in_another_order(this.act, group, group.order, queues)
    others = json_list(this.others)
    return merge(*(_candidates(this, group, queue, others) for queue in queues), key=_rank)


def _candidates(this: _Round, group: _Group, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    """Pending tasks of a queue as they should run, without those for the handlers of other sessions only.

    A queue that cannot give, because its rate is used up, is left after a while, so that a backlog in it costs little.
    """
    queue.passed = 0
    pool = queue.pool
    pending = _in_order(this.act, group, queue, others) if pool is None else _in_portions(this, group, queue, others)
    for one in pending:
        if queue.passed >= queue.max_passed:
            return
        yield one


def _in_order(act: Act, group: _Group, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    return (PendingRow(*row) for row in act.rows("claim_sift", queue.name, others, act.now, group.handlers))


def _in_portions(this: _Round, group: _Group, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    """For a queue that is bound to a pool: the first portion is as large as the number of ready members."""
    act, place = this.act, _BEFORE_ALL
    size = max(1, min(group.free, this.grants.of(queue.pool or "").ready(), _AT_ONCE))
    while True:
        wanted = (queue.name, others, act.now, group.handlers)
        portion = act.decoded("claim_bound", pending_rows, *wanted, *place, size)
        yield from portion
        if len(portion) < size:
            return
        place, size = _rank(portion[-1]), min(2 * size, _AT_ONCE)


def _in_another_order(act: Act, group: _Group, order: Order, queues: Sequence[OpenQueue]) -> Iterator[PendingRow]:
    """The first pending tasks in this order. Only what is wanted of them is read as a whole: params may be large."""
    ranked = (act.decoded("claim_ranks", ranked_rows, queue.name, group.handlers, ORDERED) for queue in queues)
    first = islice(merge(*ranked, key=_rank), ORDERED)
    rows = [one.row for one in order.apply(first)]
    size = max(1, min(group.free + group.ahead, _AT_ONCE))
    for start in range(0, len(rows), size):
        portion = rows[start : start + size]
        found = {one.row: one for one in act.decoded("claim_named", pending_rows, json_list(portion))}
        yield from (found[row] for row in portion)


def _rank(one: PendingRow | RankedRow) -> tuple[int, str]:
    return one.priority, one.id


def _take(this: _Round, group: _Group, found: list[PendingRow]) -> None:
    if not found:
        return
    if group.limited or this.granted:
        _take_each(this, group, found)
    else:
        this.act.run("claim_take", this.request.session, this.act.now, json_list(one.row for one in found))
    for (queue, batch), n in Counter((one.queue, one.batch) for one in found).items():
        this.act.moved(queue, "pending", "running", n, batch)
        this.queues[queue].pending -= n
        this.queues[queue].started(this.act, n)


def _take_each(this: _Round, group: _Group, found: list[PendingRow]) -> None:
    """As `claim_take`, where some have a member or a time limit of their own."""
    act, session = this.act, this.request.session
    plain: list[int] = []
    values: list[object] = []
    for one, slot in zip(found, group.takers, strict=False):
        granted = this.granted.get(one.row)
        if granted is None and slot.lasts is None:
            plain.append(one.row)
            continue
        member = (None, None) if granted is None else (granted[1].id, granted[0])
        limit = (None, None, None) if slot.lasts is None else (slot.worker or None, slot.lasts, slot.repeat)
        values += (one.row, *member, *limit)
    if plain:
        act.run("claim_take", session, act.now, json_list(plain))
    act.bulk_values("claim_take_each", (session, act.now), values, _WIDTH)


def _set_aside(this: _Round, sifted: _Sifted) -> None:
    """Cancel tasks that are past their expiry, and hold those whose handler no live session knows."""
    act, queues = this.act, this.queues
    if sifted.expired:
        act.run("claim_expire", act.now, json_list(one.row for one in sifted.expired))
        for one in sifted.expired:
            act.moved(one.queue, "pending", "cancelled", batch=one.batch)
            queues[one.queue].pending -= 1
            if one.unique_key is not None:
                act.run("key_free", one.id, one.unique_key)
    if sifted.unknown:
        act.run("claim_hold", json_list(one.row for one in sifted.unknown))
        for one in sifted.unknown:
            act.moved(one.queue, "pending", "held", batch=one.batch)
            queues[one.queue].pending -= 1
    if sifted.expired:
        _let_follow(this, [one.id for one in sifted.expired])


def _let_follow(this: _Round, expired: list[str]) -> None:
    """Put and release what follows expired tasks. The slots that are not filled yet may take it."""
    released = release_next(this.act, expired)
    if not follow(this.act, expired) and not released:
        return
    this.act.write_counts()
    for name, found in open_queues(this.act, this.request.slots).items():
        queue = this.queues.setdefault(name, found)
        if queue is found:
            queue.measure_room(this.act)
        queue.pending, queue.scheduled = found.pending, found.scheduled
        queue.due = queue.next_scheduled(this.act) if found.scheduled else None
