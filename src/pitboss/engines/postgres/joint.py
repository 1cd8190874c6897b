"""Tasks and the members that they need, taken in one act: tasks in their order, each with the first member that fits.

Nobody is waited for: tasks and members that somebody else is about to take are passed by.
"""

from typing import NamedTuple

from pitboss.engines.postgres.rows import claim as claim_of
from pitboss.engines.postgres.rows import names, numbers, texts, want_of
from pitboss.engines.postgres.script import Row, Script
from pitboss.engines.postgres.stock import Need, Stock
from pitboss.engines.postgres.work import LOOK_BEYOND, Undrawn, Work
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.picking import ANY, leased
from pitboss.model.resource import Leased
from pitboss.model.task import Claim

_BEFORE_ALL = (-(2**63), "00000000-0000-0000-0000-000000000000")
_ANY_NUMBER = 2**62
_RETURNED_AT_ONCE = 5000


class _Candidate(NamedTuple):
    """A pending task that is locked. `need` None: its queue is bound to no pool."""

    place: str
    id: str
    queue: str
    lost: bool
    need: Need | None


class _Lane(NamedTuple):
    """An open queue. `odd` says that what stands in front of it must be seen to first; None: nobody waits."""

    name: str
    rated: bool
    pool: str | None
    returning: bool | None
    ready: int | None
    odd: bool | None


class _Chosen(NamedTuple):
    task: _Candidate
    slot: int
    leased: Leased | None


class Taken(NamedTuple):
    """What a group was given; the claims can be made when the rows are there."""

    session: int
    now: Moment
    next_due: Moment | None
    chosen: list[_Chosen]
    rows: list[Row]

    def claims(self) -> list[Claim]:
        taken: dict[str, Row] = {row[0]: row for row in self.rows}
        return [claim_of(taken[one.task.id], self.session, self.now, one.slot, one.leased) for one in self.chosen]


def joint(work: Work) -> Script[tuple[Taken, Stock]]:
    """Fill the slots of a group of which some queues are bound to pools, within a transaction. Who is short of what is
    known when all groups are filled: the stock tells."""
    return (yield from _Joint(work).run())


class _Joint:
    def __init__(self, work: Work) -> None:
        self._work, self._say = work, work.say
        self._stock = Stock(work.say, work.now)
        self._pools: dict[str, str | None] = {}
        self._rated: set[str] = set()
        # Pools of which no member was ready to begin with: one task tells whether somebody waits for them.
        self._empty: set[str] = set()
        # How many members of a pool are ready, as far as they might be wanted; unknown where some come back now.
        self._ready: dict[str, int | None] = {}
        self._cursors: dict[str, tuple[int, str]] = {}
        self._looked_at = 0
        self._vain = False
        self._in_vain: set[Need] = set()
        self._dry: set[str] = set()

    def run(self) -> Script[tuple[Taken, Stock]]:
        now, next_due = yield from self._prepare()
        chosen: list[_Chosen] = []
        left: list[_Candidate] = []
        slots = [] if self._vain else self._work.group.slots
        for number, slot in enumerate(slots, start=self._work.group.first):
            filled, left = yield from self._fill(number, slot.free, slot.ahead, left)
            chosen += filled
        now = self._stock.now or now
        rows = yield from self._take(chosen, now)
        yield from self._stock.write()
        moments = [] if next_due is None else [next_due]
        if self._rated:
            self._work.now = now
            moments += yield from self._work.started([one.task.queue for one in chosen])
        next_due = min((moment for moment in moments if moment > now), default=None)
        return Taken(self._work.request.session, now, next_due, chosen, rows), self._stock

    def _prepare(self) -> Script[tuple[Moment, Moment | None]]:
        """See what queues there are, and to what must be seen to first."""
        group = self._work.group
        session = self._work.request.session
        rows = yield self._say.ask(
            "joint_lanes",
            self._work.now,
            session=session,
            queues=group.queues,
            handlers=self._work.handlers,
            wanted=group.wanted,
            draw=not self._work.drawn,
        )
        now, alive, due, next_due, drawable = rows[0][:5]
        if not alive:
            raise SessionLost(session)
        if drawable:
            raise Undrawn
        lanes = [_Lane(*row[5:]) for row in rows if row[5] is not None]
        self._pools = {lane.name: lane.pool for lane in lanes}
        self._rated = {lane.name for lane in lanes if lane.rated}
        self._empty = {lane.pool for lane in lanes if lane.pool and not lane.returning and not lane.ready}
        self._ready = {lane.pool: lane.ready for lane in lanes if lane.pool and not lane.returning}
        self._cursors = dict.fromkeys(self._pools, _BEFORE_ALL)
        if self._rated and (yield from self._work.measure()):
            now = self._work.now or now
        # Expiry is judged by one moment: what is locked as a candidate must not be tidied away later in this act.
        # Members are not: their moment is taken behind their locks.
        self._work.now = now
        fell_due = due
        while due:
            due = yield from self._work.promote()
        if not fell_due and self._is_vain(lanes):
            self._vain = True
            if any(slot.free for slot in group.slots):
                self._stock.lack({lane.pool for lane in lanes if lane.pool and lane.odd is not None}, now)
        returning = {lane.pool for lane in lanes if lane.pool and lane.returning}
        if returning:
            yield self._say.ask("return_members", now, pools=names(returning), limit=_RETURNED_AT_ONCE).unheard()
        return now, next_due

    def _is_vain(self, lanes: list[_Lane]) -> bool:
        """Whether nothing can be given, so that no task need be looked at: nobody waits, or for pools without a member
        to give. What stands in front and must be seen to, and rates, are looked at."""
        waiting = [lane for lane in lanes if lane.odd is not None]
        return not any(lane.odd or lane.rated or lane.pool not in self._empty for lane in waiting)

    def _fill(
        self, number: int, free: int, ahead: int, left: list[_Candidate]
    ) -> Script[tuple[list[_Chosen], list[_Candidate]]]:
        """Give a slot the first ones that it may have; what it passes by is left to the next slot."""
        chosen: list[_Chosen] = []
        passed: list[_Candidate] = []
        waiting = left[::-1]
        while len(chosen) < free + ahead:
            early = len(chosen) >= free
            if not waiting:
                waiting = (yield from self._page(early=early))[::-1]
            if not waiting:
                break
            one = waiting.pop()
            found = yield from self._try(one, number, early=early)
            if found is not None:
                chosen.append(found)
            else:
                passed.append(one)
        return chosen, [one for one in passed + waiting[::-1] if one.need is None or one.need not in self._in_vain]

    def _try(self, one: _Candidate, slot: int, *, early: bool) -> Script[_Chosen | None]:
        rooms = self._work.rooms
        rated = one.queue in self._rated
        if (early and (rated or one.lost or one.need is not None)) or (rated and not rooms.get(one.queue)):
            return None
        held: Leased | None = None
        if one.need is not None:
            member = None if one.need in self._in_vain else (yield from self._stock.give(one.need))
            if member is None:
                self._in_vain.add(one.need)
                if not self._stock.has_ready(one.need.pool) and (one.need.want == ANY or one.need.pool in self._empty):
                    self._dry.add(one.need.pool)
                return None
            held = leased(member, self._stock.rules[member.pool], self._stock.now or 0)
        if rated:
            rooms[one.queue] -= 1
        return _Chosen(one, slot, held)

    def _page(self, *, early: bool) -> Script[list[_Candidate]]:
        """The next tasks in their order, with the members that they may get at hand; none if it is enough. `early`: to
        be had ahead of a free slot, which those with a rate or a member cannot be."""
        wanted = self._work.group.wanted
        lanes = [name for name, pool in self._pools.items() if pool not in self._dry]
        lanes = [name for name in lanes if not early or (self._pools[name] is None and name not in self._rated)]
        rooms = {name: self._room(name) for name in lanes}
        lanes = [name for name in lanes if rooms[name]]
        if not lanes or self._looked_at > wanted + LOOK_BEYOND:
            return []
        size = min(LOOK_BEYOND, max(wanted, 2 * self._looked_at)) if self._looked_at else self._few(lanes, wanted)
        self._looked_at += size
        rows = yield self._say.ask(
            "candidates",
            self._work.now,
            names=texts(lanes),
            rooms=numbers([rooms[name] for name in lanes]),
            priorities=numbers([self._cursors[name][0] for name in lanes]),
            ids=texts([self._cursors[name][1] for name in lanes]),
            handlers=self._work.handlers,
            wanted=size,
        )
        self._cursors |= {row[2]: (row[3], row[1]) for row in rows}
        if any(row[7] for row in rows):
            yield from self._work.tidy(wanted)
        found = [self._candidate(row) for row in rows if not row[7]]
        if not found and rows:
            return (yield from self._page(early=early))
        yield from self._stock.load([one.need for one in found if one.need is not None], wanted)
        return found

    def _few(self, lanes: list[str], wanted: int) -> int:
        """How many to look at first: no more are locked than members are there for, or little more."""
        pools = {self._pools[lane] for lane in lanes}
        counts = [None if pool is None else self._ready.get(pool) for pool in pools]
        ready = [count for count in counts if count is not None]
        return wanted if len(ready) < len(counts) else min(wanted, 1 + 2 * sum(ready))

    def _room(self, lane: str) -> int:
        room = self._work.rooms.get(lane, 0) if lane in self._rated else _ANY_NUMBER
        pool = self._pools[lane]
        if pool is None or not room:
            return room
        # A task that no member fits takes none of the rate: those behind it are looked at too.
        return 1 if pool in self._empty else _ANY_NUMBER

    def _candidate(self, row: Row) -> _Candidate:
        place, task, queue, _, losses, want, tried, _ = row
        pool = self._pools[queue]
        need = None if pool is None else Need(pool, ANY if want is None else want_of(want), tuple(tried or ()))
        return _Candidate(place, task, queue, losses > 0, need)

    def _take(self, chosen: list[_Chosen], now: Moment) -> Script[list[Row]]:
        """The rows of what was chosen, which come later."""
        rows: list[Row] = []
        if chosen:
            yield self._say.ask(
                "take",
                now,
                session=self._work.request.session,
                places=texts([one.task.place for one in chosen]),
                resources=texts([None if one.leased is None else one.leased.id for one in chosen]),
            ).into(rows)
        return rows
