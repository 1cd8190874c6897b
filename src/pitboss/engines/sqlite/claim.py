"""Giving out tasks. The usual case, one queue whose tasks all fit, is one read and one write; the rest is sifted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.batch_lifecycle import conclude, draw
from pitboss.engines.sqlite.grants import Grants
from pitboss.engines.sqlite.open_queue import OpenQueue, open_queues
from pitboss.engines.sqlite.rows import names_of, tags_of, want_of
from pitboss.model.errors import SessionLost
from pitboss.model.picking import leased
from pitboss.model.resource import Leased, Shortage
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import Claim, Token

# Rows per read: params may be a mebibyte each, and one text must stay below SQLite's limit of a gigabyte.
_AT_ONCE = 250
# Bounds on what one claim does besides claiming; the next claim goes on.
_SET_ASIDE_AT_ONCE = 1000
_BEFORE_ALL = (-(2**63), "")


class PendingRow(msgspec.Struct, array_like=True):
    """A pending task, in the order of the columns that the statements name; the first two are its rank."""

    priority: int
    id: str
    row: int
    handler: str
    queue: str
    params: str
    attempts: int
    max_attempts: int | None
    timeout: int | None
    losses: int
    crashes: int
    created_at: int
    expires_at: int | None
    parent: str | None
    tags: str | None
    claim: int
    unique_key: str | None
    batch: str | None
    want: str | None
    tried: str | None
    rotations: int


_pending_rows = msgspec.json.Decoder(list[PendingRow])
# By the row of a task: the number of the member that is granted to it, and the member as its holder sees it.
_Granted = dict[int, tuple[int, Leased]]


class _Sifted:
    """The pending tasks that a claim looked at: to take, past their expiry, of a handler that no session knows."""

    def __init__(self) -> None:
        self.taken: list[PendingRow] = []
        self.expired: list[PendingRow] = []
        self.unknown: list[PendingRow] = []
        self.cut = False


class _Round:
    """One claim while it is made."""

    def __init__(self, act: Act, request: ClaimRequest, queues: dict[str, OpenQueue], wanted: int) -> None:
        self.act, self.request, self.queues, self._wanted = act, request, queues, wanted
        self.granted: _Granted = {}
        self._grants: Grants | None = None

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


class ClaimedRows(NamedTuple):
    """What a claim has taken. The thread that asked makes `Claimed` of it: the writing thread is the busiest one."""

    request: ClaimRequest
    now: int
    slots: list[list[PendingRow]]
    granted: _Granted
    next_due: int | None
    shortages: tuple[Shortage, ...]

    def claimed(self) -> Claimed:
        claims = [self._claim(one, slot) for slot, found in enumerate(self.slots) for one in found]
        return Claimed(claims, self.next_due, self.shortages)

    def _claim(self, one: PendingRow, slot: int) -> Claim:
        granted = self.granted.get(one.row)
        return Claim(
            id=one.id,
            token=Token(self.request.session, one.claim + 1),
            handler=one.handler,
            queue=one.queue,
            params=one.params,
            attempt=one.attempts + 1,
            priority=one.priority,
            max_attempts=one.max_attempts,
            timeout=one.timeout,
            losses=one.losses,
            crashes=one.crashes,
            created_at=one.created_at,
            claimed_at=self.now,
            expires_at=one.expires_at,
            parent=one.parent,
            tags=() if one.tags is None else tags_of(one.tags),
            slot=slot,
            leased=None if granted is None else granted[1],
            batch=one.batch,
            rotations=one.rotations,
        )


def claim(act: Act, request: ClaimRequest) -> ClaimedRows:
    """As the contract says."""
    row = act.one("claim_begin", request.session, act.now)
    if row is None:
        raise SessionLost(request.session)
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    queues, again = _opened(act, request.slots, wanted, batches=bool(row[0]))
    this = _Round(act, request, queues, wanted)
    slots: list[list[PendingRow]] = []
    for slot in request.slots:
        found, cut = _fill(this, slot)
        slots.append(found)
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


def _fill(this: _Round, slot: Slot) -> tuple[list[PendingRow], bool]:
    """The tasks for one slot, and whether a bound cut the look short."""
    names = this.queues if slot.queues is None else dict.fromkeys(slot.queues)
    full = [queue for name in names if (queue := this.queues.get(name)) is not None and queue.may_give]
    if not full or slot.free + slot.ahead <= 0:
        return [], False
    plain = len(full) == 1 and not full[0].rate and full[0].pool is None
    taken, done = _take_in_order(this, slot, full[0]) if plain else ([], False)
    if done:
        return taken, False
    sifted = _sift(this, slot, full, len(taken))
    _set_aside(this.act, sifted, this.queues)
    _take(this, sifted.taken)
    return taken + sifted.taken, sifted.cut


def _take_in_order(this: _Round, slot: Slot, queue: OpenQueue) -> tuple[list[PendingRow], bool]:
    """Take the first tasks of the only queue as long as all of them fit; False if one needs a closer look."""
    taken: list[PendingRow] = []
    while queue.pending and (left := slot.free + slot.ahead - len(taken)):
        portion = this.act.decoded("claim_next", _pending_rows, queue.name, min(_AT_ONCE, left))
        if not portion:
            break
        if not _all_fit(portion, slot, this.request, this.act.now, len(taken)):
            return taken, False
        _take(this, portion)
        taken += portion
    return taken, True


def _all_fit(portion: list[PendingRow], slot: Slot, request: ClaimRequest, now: int, before: int) -> bool:
    handlers = request.handlers
    return all(
        (handlers is None or one.handler in handlers) and (one.expires_at is None or one.expires_at > now)
        for one in portion
    ) and not any(one.losses for one in islice(portion, max(0, slot.free - before), None))


def _sift(this: _Round, slot: Slot, queues: Sequence[OpenQueue], before: int) -> _Sifted:
    """Go through the pending tasks of all queues in their common order and decide each; no task is written yet."""
    sifted, handlers, now = _Sifted(), this.request.handlers, this.act.now
    others = _known_to_others(this.act, this.request)
    for one in merge(*(_candidates(this, slot, queue, others) for queue in queues), key=_rank):
        claimed = before + len(sifted.taken)
        if claimed >= slot.free + slot.ahead:
            break
        if len(sifted.expired) + len(sifted.unknown) >= _SET_ASIDE_AT_ONCE:
            sifted.cut = True
            break
        if one.expires_at is not None and one.expires_at <= now:
            sifted.expired.append(one)
        elif handlers is not None and one.handler not in handlers:
            sifted.unknown.append(one)
        elif _may_take(this, one, ahead=claimed >= slot.free):
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


def _candidates(this: _Round, slot: Slot, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    """Pending tasks of a queue as they should run, without those for the handlers of other sessions only.

    A queue that cannot give, because its rate is used up, is left after a while, so that a backlog in it costs little.
    """
    queue.passed = 0
    pool = queue.pool
    pending = _in_order(this.act, queue, others) if pool is None else _in_portions(this, slot, queue, pool, others)
    for one in pending:
        if queue.passed >= queue.max_passed:
            return
        yield one


def _in_order(act: Act, queue: OpenQueue, others: str) -> Iterator[PendingRow]:
    return (PendingRow(*row) for row in act.rows("claim_sift", queue.name, others, act.now))


def _in_portions(this: _Round, slot: Slot, queue: OpenQueue, pool: str, others: str) -> Iterator[PendingRow]:
    """For a queue that is bound to a pool: the first portion is as large as the number of ready members."""
    size = max(1, min(slot.free, this.grants.of(pool).ready(), _AT_ONCE))
    place = _BEFORE_ALL
    while True:
        portion = this.act.decoded("claim_bound", _pending_rows, queue.name, others, this.act.now, *place, size)
        yield from portion
        if len(portion) < size:
            return
        place, size = _rank(portion[-1]), min(2 * size, _AT_ONCE)


def _known_to_others(act: Act, request: ClaimRequest) -> str:
    if request.handlers is None:
        return "[]"
    live: set[Any] = {row[0] for row in act.rows("handler_list_live", act.now)}
    return json_list(live - request.handlers)


def _rank(one: PendingRow) -> tuple[int, str]:
    return one.priority, one.id


def _take(this: _Round, found: list[PendingRow]) -> None:
    if not found:
        return
    act, session, granted = this.act, this.request.session, this.granted
    plain = [one.row for one in found if one.row not in granted] if granted else [one.row for one in found]
    if plain:
        act.run("claim_take", session, act.now, json_list(plain))
    if granted:
        bound = [one.row for one in found if one.row in granted]
        act.bulk("claim_take_bound", [(row, session, act.now, granted[row][1].id, granted[row][0]) for row in bound])
    for (queue, batch), n in Counter((one.queue, one.batch) for one in found).items():
        act.moved(queue, "pending", "running", n, batch)
        this.queues[queue].pending -= n
        this.queues[queue].started(act, n)


def _set_aside(act: Act, sifted: _Sifted, queues: dict[str, OpenQueue]) -> None:
    """Cancel tasks that are past their expiry, and hold those whose handler no live session knows."""
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
