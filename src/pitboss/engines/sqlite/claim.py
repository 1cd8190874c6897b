"""Handing out tasks. The usual case, one queue whose tasks all fit, is one read and one write; the rest is sifted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.gates import conclude, draw
from pitboss.engines.sqlite.lanes import Lane, open_lanes
from pitboss.engines.sqlite.lending import Lenders
from pitboss.engines.sqlite.rows import names_of, tags_of, want_of
from pitboss.model.errors import SessionLost
from pitboss.model.picking import leased
from pitboss.model.resource import Leased, Shortage
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import Claim, Token

# Rows per read: params may be a mebibyte each, and one text must stay below SQLite's limit of a gigabyte.
_AT_ONCE = 250
# Bounds on what one claim does besides claiming; the next claim goes on.
_SWEPT_AT_ONCE = 1000
_BEFORE_ALL = (-(2**63), "")


class Found(msgspec.Struct, array_like=True):
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


class _Sifted:
    """What a look at the pending tasks came to."""

    def __init__(self) -> None:
        self.taken: list[Found] = []
        self.expired: list[Found] = []
        self.strange: list[Found] = []
        self.cut = False


_found = msgspec.json.Decoder(list[Found])


class _Round:
    """One claim on its way. `lent` is what tasks were given with, by their row."""

    def __init__(self, act: Act, request: ClaimRequest, lanes: dict[str, Lane], wanted: int) -> None:
        self.act, self.request, self.lanes = act, request, lanes
        self.lenders = Lenders(act, wanted)
        self.lent: dict[int, tuple[int, Leased]] = {}

    def lend(self, one: Found, lane: Lane, pool: str) -> bool:
        """Give the task its member; False if there is none for it."""
        lending = self.lenders.of(pool)
        number = lending.lend(want_of(one.want), names_of(one.tried))
        if number is None:
            lane.dry = lending.has_none()
            return False
        shelf = lending.shelf
        self.lent[one.row] = (number, leased(shelf.members[number], shelf.rules, self.act.now))
        return True


class Given(NamedTuple):
    """What a claim came to, as the rows say it. `claimed` is for the thread that asked: the one that writes has more
    to do than any other."""

    request: ClaimRequest
    now: int
    slots: list[list[Found]]
    lent: dict[int, tuple[int, Leased]]
    next_due: int | None
    shortages: tuple[Shortage, ...]

    def claimed(self) -> Claimed:
        claims = [self._claim(one, slot) for slot, found in enumerate(self.slots) for one in found]
        return Claimed(claims, self.next_due, self.shortages)

    def _claim(self, one: Found, slot: int) -> Claim:
        lent = self.lent.get(one.row)
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
            tags=tags_of(one.tags),
            slot=slot,
            leased=None if lent is None else lent[1],
            batch=one.batch,
            rotations=one.rotations,
        )


def claim(act: Act, request: ClaimRequest) -> Given:
    """As the contract says."""
    row = act.one("claim_begin", request.session, act.now)
    if row is None:
        raise SessionLost(request.session)
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    lanes, again = _opened(act, request.slots, wanted, batches=bool(row[0]))
    this = _Round(act, request, lanes, wanted)
    slots: list[list[Found]] = []
    for slot in request.slots:
        found, short = _fill(this, slot)
        slots.append(found)
        again = again or short
    this.lenders.write()
    shortages = tuple(this.lenders.shortages())
    moments = [act.now] if again else []
    moments += [short.until for short in shortages if short.until is not None]
    moments += [moment for lane in lanes.values() if (moment := lane.next_moment(act)) is not None]
    moments += _put_for_later(act, request.slots) if act.touched else []
    return Given(request, act.now, slots, this.lent, min(moments, default=None), shortages)


def _put_for_later(act: Act, slots: Sequence[Slot]) -> list[int]:
    """A batch whose last item expired may have put a task that is due later."""
    conclude(act)
    later = (lane.next_scheduled(act) for lane in open_lanes(act, slots).values() if lane.scheduled)
    return [moment for moment in later if moment is not None]


def _opened(act: Act, slots: Sequence[Slot], wanted: int, *, batches: bool) -> tuple[dict[str, Lane], bool]:
    """The lanes with all that may start now, and whether there may be more at once."""
    lanes, again = open_lanes(act, slots), False
    for lane in lanes.values():
        lane.promote(act, wanted, batches=batches)
    if batches:
        again = draw(act, slots)
        lanes = open_lanes(act, slots)
        for lane in lanes.values():
            lane.promote(act, wanted, batches=True)
    for lane in lanes.values():
        lane.measure(act)
    return lanes, again


def _fill(this: _Round, slot: Slot) -> tuple[list[Found], bool]:
    """The tasks for one slot, and whether bounds cut the look short."""
    names = this.lanes if slot.queues is None else dict.fromkeys(slot.queues)
    full = [lane for name in names if (lane := this.lanes.get(name)) is not None and lane.gives]
    if not full or slot.free + slot.ahead <= 0:
        return [], False
    plain = len(full) == 1 and not full[0].rate and full[0].pool is None
    taken, done = _take_in_order(this, slot, full[0]) if plain else ([], False)
    if done:
        return taken, False
    sifted = _sift(this, slot, full, len(taken))
    _sweep(this.act, sifted, this.lanes)
    _take(this, sifted.taken)
    return taken + sifted.taken, sifted.cut


def _take_in_order(this: _Round, slot: Slot, lane: Lane) -> tuple[list[Found], bool]:
    """Take the first tasks of the only lane as long as all of them fit; False if one needs a closer look."""
    taken: list[Found] = []
    while lane.pending and (left := slot.free + slot.ahead - len(taken)):
        portion = this.act.decoded("claim_next", _found, lane.name, min(_AT_ONCE, left))
        if not portion:
            break
        if not _all_fit(portion, slot, this.request, this.act.now, len(taken)):
            return taken, False
        _take(this, portion)
        taken += portion
    return taken, True


def _all_fit(portion: list[Found], slot: Slot, request: ClaimRequest, now: int, before: int) -> bool:
    handlers = request.handlers
    return all(
        (handlers is None or one.handler in handlers) and (one.expires_at is None or one.expires_at > now)
        for one in portion
    ) and not any(one.losses for one in islice(portion, max(0, slot.free - before), None))


def _sift(this: _Round, slot: Slot, lanes: Sequence[Lane], before: int) -> _Sifted:
    """Go through the pending tasks of all lanes in their common order and decide each; no task is written yet."""
    sifted, handlers, now = _Sifted(), this.request.handlers, this.act.now
    others = _known_to_others(this.act, this.request)
    for one in merge(*(_candidates(this, slot, lane, others) for lane in lanes), key=_rank):
        claimed = before + len(sifted.taken)
        if claimed >= slot.free + slot.ahead:
            break
        if len(sifted.expired) + len(sifted.strange) >= _SWEPT_AT_ONCE:
            sifted.cut = True
            break
        if one.expires_at is not None and one.expires_at <= now:
            sifted.expired.append(one)
        elif handlers is not None and one.handler not in handlers:
            sifted.strange.append(one)
        elif _may_take(this, one, ahead=claimed >= slot.free):
            sifted.taken.append(one)
        else:
            this.lanes[one.queue].passed += 1
    return sifted


def _may_take(this: _Round, one: Found, *, ahead: bool) -> bool:
    lane = this.lanes[one.queue]
    if lane.pool is not None and (ahead or lane.dry):
        lane.close()
        return False
    if lane.room == 0 or (ahead and (lane.rate or one.losses)):
        return False
    if lane.pool is not None and not this.lend(one, lane, lane.pool):
        return False
    if lane.room is not None:
        lane.room -= 1
    return True


def _candidates(this: _Round, slot: Slot, lane: Lane, others: str) -> Iterator[Found]:
    """Pending tasks of a lane as they should run, without those that are for other sessions' handlers.

    A lane that cannot give, because its rate is used up, is left after a while, so that a backlog in it costs little.
    """
    lane.passed = 0
    pending = _in_turn(this.act, lane, others) if lane.pool is None else _bound(this, slot, lane, lane.pool, others)
    for one in pending:
        if lane.passed >= lane.most_passed:
            return
        yield one


def _in_turn(act: Act, lane: Lane, others: str) -> Iterator[Found]:
    return (Found(*row) for row in act.rows("claim_sift", lane.name, others, act.now))


def _bound(this: _Round, slot: Slot, lane: Lane, pool: str, others: str) -> Iterator[Found]:
    """In portions, the first as large as the number of members that may be given with them."""
    size = max(1, min(slot.free, this.lenders.of(pool).at_hand(), _AT_ONCE))
    place = _BEFORE_ALL
    while True:
        portion = this.act.decoded("claim_bound", _found, lane.name, others, this.act.now, *place, size)
        yield from portion
        if len(portion) < size:
            return
        place, size = _rank(portion[-1]), min(2 * size, _AT_ONCE)


def _known_to_others(act: Act, request: ClaimRequest) -> str:
    if request.handlers is None:
        return "[]"
    live: set[Any] = {row[0] for row in act.rows("handler_list_live", act.now)}
    return json_list(live - request.handlers)


def _rank(one: Found) -> tuple[int, str]:
    return one.priority, one.id


def _take(this: _Round, found: list[Found]) -> None:
    if not found:
        return
    act, session, lent = this.act, this.request.session, this.lent
    plain = [one.row for one in found if one.row not in lent] if lent else [one.row for one in found]
    if plain:
        act.run("claim_take", session, act.now, json_list(plain))
    if lent:
        rows = [(one.row, session, act.now, lent[one.row][1].id, lent[one.row][0]) for one in found if one.row in lent]
        act.bulk("claim_take_bound", rows)
    for (queue, batch), n in Counter((one.queue, one.batch) for one in found).items():
        act.moved(queue, "pending", "running", n, batch)
        this.lanes[queue].pending -= n
        this.lanes[queue].started(act, n)


def _sweep(act: Act, sifted: _Sifted, lanes: dict[str, Lane]) -> None:
    """Cancel what is past its expiry and hold what nobody knows."""
    if sifted.expired:
        act.run("claim_expire", act.now, json_list(one.row for one in sifted.expired))
        for one in sifted.expired:
            act.moved(one.queue, "pending", "cancelled", batch=one.batch)
            lanes[one.queue].pending -= 1
            if one.unique_key is not None:
                act.run("key_free", one.id, one.unique_key)
    if sifted.strange:
        act.run("claim_hold", json_list(one.row for one in sifted.strange))
        for one in sifted.strange:
            act.moved(one.queue, "pending", "held", batch=one.batch)
            lanes[one.queue].pending -= 1
