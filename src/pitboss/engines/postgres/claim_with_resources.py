"""Tasks and the members that they need, taken in one act: tasks in their order, each with the first member that fits.

It waits for no lock: tasks and members that another transaction has locked are skipped.
"""

from typing import NamedTuple

from pitboss.engines.postgres.claim_group import LOOK_BEYOND, Group, GroupClaim, Numbered
from pitboss.engines.postgres.ready_members import MemberGrants, Need
from pitboss.engines.postgres.rows import claim as claim_of
from pitboss.engines.postgres.rows import names, numbers, texts, want_of
from pitboss.engines.postgres.script import Row, Script
from pitboss.model.batch import BatchId
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.picking import ANY, leased
from pitboss.model.resource import Leased
from pitboss.model.session import ORDERED
from pitboss.model.task import Claim

BEFORE_ALL = (-(2**63), "00000000-0000-0000-0000-000000000000")
ANY_NUMBER = 2**62
_RETURNED_AT_ONCE = 5000
# Where a row of `claim_candidates` has what a slot may be ordered by.
_ORDERED_BY = {"priority": 3, "created_at": 8, "id": 1, "attempts": 9}


class Candidate(NamedTuple):
    """A pending task that is locked. `need` None: its queue is bound to no pool. The rest is for queues with partitions
    (`claim_keyed`)."""

    place: str
    id: str
    queue: str
    lost: bool
    need: Need | None
    key: str | None = None
    priority: int = 0
    created_at: Moment = 0
    attempts: int = 0
    batch: BatchId | None = None
    run_at: Moment | None = None
    odd: bool = False
    other: bool = False
    depth: int = 0


class OpenQueue(NamedTuple):
    """A queue that is not paused. `odd`: its first task is expired or for another session; None: no task waits.
    `helped` None: it has no partitions."""

    name: str
    rated: bool
    helped: str | None
    max_per_key: int | None
    pool: str | None
    returning: bool | None
    ready: int | None
    odd: bool | None


class Chosen(NamedTuple):
    task: Candidate
    place: Numbered
    leased: Leased | None


class Taken(NamedTuple):
    """What a group was given; the claims can be made when the rows are there."""

    group: Group
    now: Moment
    next_due: Moment | None
    chosen: list[Chosen]
    rows: list[Row]
    grants: MemberGrants

    @property
    def numbers(self) -> set[int]:
        """The numbers of the slots that were given something."""
        return {one.place[0] for one in self.chosen}

    @property
    def missed(self) -> bool:
        """Whether another transaction changed a task that was chosen before it was locked."""
        return len(self.rows) < len(self.chosen)

    def claims(self) -> list[Claim]:
        taken: dict[str, Row] = {row[0]: row for row in self.rows}
        session, now, ends = self.group.session, self.now, self.group.ends(self.now)
        return [
            claim_of(taken[one.task.id], session, now, one.place[0], ends=ends, leased=one.leased)
            for one in self.chosen
            if one.task.id in taken
        ]


def claim_with_resources(claim: GroupClaim) -> Script[Taken | None]:
    """Fill a group with queues that are bound to pools, within a transaction; None as `GroupClaim` says. Shortages are
    known when all groups are filled: `grants` tells them."""
    return (yield from ClaimWithResources(claim).run())


class ClaimWithResources:
    """The claim for a group whose queues may be bound to pools."""

    # Takes the tasks that were chosen.
    taking = "claim_take_bound"

    def __init__(self, claim: GroupClaim) -> None:
        self._claim, self._sql = claim, claim.sql
        self._grants = MemberGrants(claim.sql, claim.clock, claim.shared.floors)
        self._pools: dict[str, str | None] = {}
        self._rated: set[str] = set()
        # Pools without a ready member at the start: one task is enough to tell that a task waits for them.
        self._empty: set[str] = set()
        # How many members of a pool are ready, counted up to the number wanted. Not known where some come back now.
        self._ready: dict[str, int | None] = {}
        self._cursors: dict[str, tuple[int, str]] = {}
        self._looked_at = 0
        self._hopeless = False
        self._unmet: set[Need] = set()
        self._dry: set[str] = set()

    def run(self) -> Script[Taken | None]:
        begun = yield from self._prepare()
        if begun is None:
            return None
        now, next_due = begun
        chosen = list[Chosen]() if self._hopeless else (yield from self._choose())
        if self._claim.late:
            return None
        now = self._grants.now or now
        rows = yield from self._take(chosen, now)
        yield from self._grants.write()
        moments = [] if next_due is None else [next_due]
        if self._rated:
            self._claim.now = now
            moments += yield from self._claim.started([one.task.queue for one in chosen])
        next_due = min((moment for moment in moments if moment > now), default=None)
        return Taken(self._claim.group, now, next_due, chosen, rows, self._grants)

    def _choose(self) -> Script[list[Chosen]]:
        chosen: list[Chosen] = []
        left: list[Candidate] = []
        for place in self._claim.group.slots:
            filled, left = yield from self._fill(place, left)
            chosen += filled
            if self._claim.late:
                break
        return chosen

    def _prepare(self) -> Script[tuple[Moment, Moment | None] | None]:
        """Read what the queues are, and do what comes before taking tasks; None if another plan is needed."""
        group = self._claim.group
        rows = yield self._sql.ask(
            "claim_queues",
            self._claim.now,
            session=group.session,
            queues=group.queues,
            handlers=group.handlers,
            only=group.only,
            wanted=group.wanted,
            draw=not self._claim.drawn,
        )
        now, alive, due, next_due, drawable = rows[0][:5]
        if not alive:
            raise SessionLost(group.session)
        queues = [OpenQueue(*row[5:]) for row in rows if row[5] is not None]
        self._note(queues, drawable=drawable)
        if drawable or not self._suits(queues):
            return None
        if self._rated and (yield from self._claim.measure()):
            now = self._claim.now or now
        # Expiry is judged by one moment: what is locked as a candidate must not be tidied away later in this act.
        # Members are not: their moment is taken behind their locks.
        self._claim.now = now
        fell_due = due
        while due:
            due = yield from self._claim.promote()
        if not fell_due and self._is_hopeless(queues):
            self._hopeless = True
            if any(slot.free for _, slot in group.slots):
                self._grants.lack({one.pool for one in queues if one.pool and one.odd is not None}, now)
        returning = {one.pool for one in queues if one.pool and one.returning}
        if returning:
            yield self._sql.ask("member_wake", now, pools=names(returning), limit=_RETURNED_AT_ONCE).unheard()
        return now, next_due

    def _note(self, queues: list[OpenQueue], *, drawable: bool) -> None:
        self._pools = {one.name: one.pool for one in queues}
        self._rated = {one.name for one in queues if one.rated}
        self._empty = {one.pool for one in queues if one.pool and not one.returning and not one.ready}
        self._ready = {one.pool: one.ready for one in queues if one.pool and not one.returning}
        self._cursors = dict.fromkeys(self._pools, BEFORE_ALL)
        pooled, keyed = any(self._pools.values()), any(one.helped is not None for one in queues)
        self._claim.plan = self._claim.plan._replace(
            rated=bool(self._rated), pooled=pooled, keyed=keyed, drawable=drawable
        )

    def _suits(self, queues: list[OpenQueue]) -> bool:
        """Whether these queues can be claimed from in this way."""
        return not self._claim.plan.keyed

    def _is_hopeless(self, queues: list[OpenQueue]) -> bool:
        """Whether nothing can be given, so that no task need be looked at: no task waits, or only for pools without a
        ready member. Rates, and tasks in front that cannot be given, are looked at."""
        waiting = [one for one in queues if one.odd is not None]
        return not any(one.odd or one.rated or one.pool not in self._empty for one in waiting)

    def _fill(self, place: Numbered, left: list[Candidate]) -> Script[tuple[list[Chosen], list[Candidate]]]:
        """Give a slot the first tasks that it may have; what it skips is left to the next slot."""
        free, ahead = place[1].free, place[1].ahead
        chosen: list[Chosen] = []
        passed: list[Candidate] = []
        waiting = left[::-1]
        while len(chosen) < free + ahead:
            early = len(chosen) >= free
            if not waiting:
                waiting = (yield from self._page(early=early))[::-1]
            if not waiting:
                break
            one = waiting.pop()
            found = yield from self._try(one, place, early=early)
            if found is not None:
                chosen.append(found)
            else:
                passed.append(one)
        return chosen, [one for one in passed + waiting[::-1] if one.need is None or one.need not in self._unmet]

    def _try(self, one: Candidate, place: Numbered, *, early: bool) -> Script[Chosen | None]:
        rooms = self._claim.rooms
        rated = one.queue in self._rated
        if (early and (rated or one.lost or one.need is not None)) or (rated and not rooms.get(one.queue)):
            return None
        held: Leased | None = None
        if one.need is not None:
            member = None if one.need in self._unmet else (yield from self._grants.give(one.need))
            if member is None:
                self._unmet.add(one.need)
                if not self._grants.has_ready(one.need.pool) and (one.need.want == ANY or one.need.pool in self._empty):
                    self._dry.add(one.need.pool)
                return None
            held = leased(member, self._grants.rules[member.pool], self._grants.now or 0)
        if rated:
            rooms[one.queue] -= 1
        return Chosen(one, place, held)

    def _page(self, *, early: bool) -> Script[list[Candidate]]:
        """The next tasks in their order, with the members for them read; none if enough were looked at. `early`: only
        tasks that may be claimed ahead, so none of a queue with a rate or a pool."""
        group = self._claim.group
        wanted = group.wanted
        queues = [name for name, pool in self._pools.items() if pool not in self._dry]
        queues = [name for name in queues if not early or (self._pools[name] is None and name not in self._rated)]
        rooms = {name: self._room(name) for name in queues}
        queues = [name for name in queues if rooms[name]]
        if not queues or self._looked_at > wanted + LOOK_BEYOND or (self._looked_at and group.order is not None):
            return []
        size = min(LOOK_BEYOND, max(wanted, 2 * self._looked_at)) if self._looked_at else self._few(queues, wanted)
        size = size if group.order is None else ORDERED
        self._looked_at += size
        rows = yield self._sql.ask(
            "claim_candidates",
            self._claim.now,
            names=texts(queues),
            rooms=numbers([rooms[name] for name in queues]),
            priorities=numbers([self._cursors[name][0] for name in queues]),
            ids=texts([self._cursors[name][1] for name in queues]),
            handlers=group.handlers,
            only=group.only,
            wanted=size,
        )
        self._cursors |= {row[2]: (row[3], row[1]) for row in rows}
        if group.order is not None:
            column = _ORDERED_BY[group.order.field]
            rows = sorted(rows, key=lambda row: row[column], reverse=group.order.descending)
        if any(row[7] for row in rows):
            yield from self._claim.tidy(wanted)
            if self._claim.late:
                return []
        found = [self._candidate(row) for row in rows if not row[7]]
        if not found and rows:
            return (yield from self._page(early=early))
        yield from self._grants.load([one.need for one in found if one.need is not None], wanted)
        return found

    def _few(self, queues: list[str], wanted: int) -> int:
        """How many to look at first: hardly more tasks are locked than there are members."""
        pools = {self._pools[name] for name in queues}
        counts = [None if pool is None else self._ready.get(pool) for pool in pools]
        ready = [count for count in counts if count is not None]
        return wanted if len(ready) < len(counts) else min(wanted, 1 + 2 * sum(ready))

    def _room(self, queue: str) -> int:
        room = self._claim.rooms.get(queue, 0) if queue in self._rated else ANY_NUMBER
        pool = self._pools[queue]
        if self._claim.group.order is not None:
            # Any of them may come first.
            return ANY_NUMBER if room else 0
        if pool is None or not room:
            return room
        # A task that no member fits takes nothing of the rate: those behind it are looked at too.
        return 1 if pool in self._empty else ANY_NUMBER

    def _candidate(self, row: Row) -> Candidate:
        place, task, queue, _, losses, want, tried = row[:7]
        pool = self._pools[queue]
        need = None if pool is None else Need(pool, ANY if want is None else want_of(want), tuple(tried or ()))
        return Candidate(place, task, queue, losses > 0, need)

    def _take(self, chosen: list[Chosen], now: Moment) -> Script[list[Row]]:
        """Make the chosen tasks running; their rows come later."""
        rows: list[Row] = []
        if chosen:
            yield self._sql.ask(
                self.taking,
                now,
                session=self._claim.group.session,
                places=texts([one.task.place for one in chosen]),
                resources=texts([None if one.leased is None else one.leased.id for one in chosen]),
                **self._claim.group.recorded(one.place[1] for one in chosen),
            ).into(rows)
        return rows
