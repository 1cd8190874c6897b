"""The members of one pool during one act: read once, decided by `model.leasing`, written together."""

from collections.abc import Iterable
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.member_rows import STAGES, MemberRow, member_of, member_rows, rules_of, standing
from pitboss.model.duration import Moment
from pitboss.model.leasing import Moved, Nth, ended, limits_of, most_remembered, moved, open_span, shortage, used
from pitboss.model.resource import Limits, PoolRules, Resource, Shortage, UseEnd

_use_rows = msgspec.json.Decoder(list[tuple[int, int, int]])


class PoolMembers:
    """`known` holds the members that were read, by number, with the changes of this act."""

    def __init__(self, act: Act, pool: str) -> None:
        self.act, self.pool = act, pool
        row: Any = act.one("pool_rules", pool)
        self.rules = PoolRules() if row is None else rules_of(row[0])
        self.known: dict[int, Resource] = {}
        self.numbers: dict[str, int] = {}
        self.uses = Uses(act)
        self._changed: set[int] = set()

    def fetch(self, numbers: Iterable[int]) -> None:
        """Read those that exist and are not known yet."""
        missing = [number for number in numbers if number not in self.known]
        if missing:
            self.keep(self.act.decoded("member_read", member_rows, json_list(missing)))

    def keep(self, rows: list[MemberRow]) -> list[int]:
        """Add rows of members that are not known yet; their numbers."""
        fresh = [row for row in rows if row.number not in self.known]
        for row in fresh:
            self.known[row.number] = member_of(self.pool, row)
            self.numbers[row.name] = row.number
        return [row.number for row in fresh]

    def member(self, number: int) -> Resource | None:
        """None if it was removed."""
        self.fetch([number])
        return self.known.get(number)

    def named(self, name: str) -> int | None:
        """The number of the member of that name."""
        if name not in self.numbers:
            self.keep(self.act.decoded("member_read_named", member_rows, self.pool, json_list([name])))
        return self.numbers.get(name)

    def limits(self, member: Resource) -> Limits:
        return limits_of(member, self.rules)

    def change(self, number: int, member: Resource) -> None:
        self.known[number] = member
        self._changed.add(number)

    def use(self, number: int, instead: Moment | None) -> Moment | Shortage:
        """One more use by the holder, or a granted one moved to now: its moment, or until when the limits forbid it."""
        member, now = self.known[number], self.act.now
        nth, open_for = self.uses.nth(number, member), open_span(self.limits(member))
        change = None if instead is None else moved(member, self.rules, nth, instead, now)
        if isinstance(change, Moved):
            self._move(number, change)
            return change.at - open_for
        if change is not None or member.available_at > now:
            until = member.available_at if change is None else change
            return Shortage(pool=self.pool, why="all away", until=until)
        after = used(member, self.rules, nth, now)
        self.uses.add(number, after, self.limits(after))
        self.change(number, after)
        return after.last_used_at - open_for

    def end_use(self, number: int, end: UseEnd) -> bool:
        """An open use is over; whether the member may be used earlier than it was known."""
        member = self.known[number]
        self.uses.prefetch([(number, member, self.limits(member))], used=False)
        change = ended(member, self.rules, self.uses.nth(number, member), end, self.act.now)
        if change is None:
            return False
        self._move(number, change)
        return change.member.available_at < member.available_at

    def write(self) -> None:
        if self._changed:
            self.act.bulk("member_write", [standing(number, self.known[number]) for number in sorted(self._changed)])
            self._changed.clear()
        self.uses.write()

    def shortage(self) -> Shortage:
        """Why no member could be given. Reads the store: `write` first."""
        row: Any = self.act.one("pool_shortage", self.pool, self.act.now)
        stage, until = row
        return shortage(self.pool, {} if stage is None else {STAGES[stage]: 1}, until)

    def ring(self) -> None:
        """Wake those that wait for queues bound to the pool."""
        queues: Iterable[Any] = self.act.rows("pool_queues", self.pool)
        self.act.rings.update(row[0] for row in queues)

    def _move(self, number: int, change: Moved) -> None:
        self.uses.put(number, change.member, change.newest)
        self.change(number, change.member)


class Uses:
    """When a pool's members were used, as far back as their windows look.

    Uses of a member are numbered, and later numbers have later moments, so that the n-th newest is found at once.
    """

    def __init__(self, act: Act) -> None:
        self._act = act
        self._moments: dict[tuple[int, int], Moment | None] = {}
        self._added: dict[tuple[int, int], Moment] = {}
        self._forgotten: list[Row] = []

    def prefetch(self, members: Iterable[tuple[int, Resource, Limits]], *, used: bool = True) -> None:
        """Read in one step what their next use will ask for; not `used`: what a change of their rules, or the end of
        their newest use, will."""
        asked: set[tuple[int, int]] = set()
        for number, member, limits in members:
            uses = member.record.uses
            asked |= {(number, uses - window.count + 1 + used) for window in limits.windows}
            asked |= {(number, uses), (number, uses - (not used))} if limits.windows else set()
        wanted = [(number, seq) for number, seq in asked if seq > 0]
        if wanted:
            self._read(wanted)

    def nth(self, number: int, member: Resource) -> Nth:
        uses = member.record.uses

        def moment(n: int) -> Moment | None:
            return self._moment(number, uses - n + 1) if n <= uses else None

        return moment

    def add(self, number: int, used: Resource, limits: Limits) -> None:
        """Its newest use is the last; uses that no window looks back to any more are forgotten."""
        kept, newest = most_remembered(limits), used.record.uses
        if kept:
            self._add_newest(number, newest, kept, used.last_used_at)
        if newest > kept:
            self._moments[number, newest - kept] = None
            self._forgotten.append((number, newest - kept))

    def put(self, number: int, member: Resource, moments: list[Moment]) -> None:
        """Replace its newest uses by these."""
        for seq, at in enumerate(moments, start=member.record.uses - len(moments) + 1):
            if self._moments.get((number, seq)) != at:
                self._moments[number, seq] = self._added[number, seq] = at

    def write(self) -> None:
        if self._added:
            self._act.bulk("use_add", [(*use, at) for use, at in self._added.items()])
            self._added.clear()
        if self._forgotten:
            self._act.bulk("use_forget", self._forgotten)
            self._forgotten.clear()

    def _add_newest(self, number: int, newest: int, kept: int, at: Moment) -> None:
        moments, before = [at], self._moment(number, newest - 1) if newest > 1 else None
        if before is not None and before > at:
            # The clock was set back, or uses are open for a shorter time now: sort, so that the n-th newest use still
            # has the n-th latest moment.
            remembered = [self._moment(number, seq) for seq in range(max(1, newest - kept), newest)]
            moments = sorted([*moments, *(one for one in remembered if one is not None)])
        for seq, moment in enumerate(moments, start=newest - len(moments) + 1):
            self._moments[number, seq] = self._added[number, seq] = moment

    def _moment(self, number: int, seq: int) -> Moment | None:
        if (number, seq) not in self._moments:
            self._read([(number, seq)])
        return self._moments[number, seq]

    def _read(self, asked: list[tuple[int, int]]) -> None:
        # What this act has changed is not in the table yet.
        asked = [use for use in asked if use not in self._moments]
        if not asked:
            return
        self._moments.update(dict.fromkeys(asked))
        found = self._act.decoded("use_at", _use_rows, msgspec.json.encode(asked).decode())
        self._moments.update({(number, seq): at for number, seq, at in found})
