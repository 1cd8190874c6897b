"""Members that are given back in one act."""

from collections.abc import Iterable, Sequence
from typing import Any

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.pool_members import PoolMembers
from pitboss.model.member_health import STRIKES_KEPT, forgiven, given_back, may_eject, room_on_blacklist
from pitboss.model.outdone import SentAway, may_send_away, outdone
from pitboss.model.resource import Report, UseEnd


def pool_of(resource: str) -> str:
    """The pool of a resource's id."""
    return resource.partition("/")[0]


class Returns:
    """What is given back in one act, pool by pool. `write` it before the act is over."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._pools: dict[str, _PoolReturns] = {}

    def prefetch(self, held: Iterable[tuple[str, int, bool]]) -> None:
        """Read these members (pool, number) in one step per pool, and the uses of those whose open use ends."""
        by_pool: dict[str, dict[int, bool]] = {}
        for pool, number, ends in held:
            numbers = by_pool.setdefault(pool, {})
            numbers[number] = ends or numbers.get(number, False)
        for pool, numbers in by_pool.items():
            members = self._pool(pool).members
            members.fetch(numbers)
            ending = [number for number, ends in numbers.items() if ends and number in members.known]
            members.uses.prefetch(
                ((number, members.known[number], members.limits(members.known[number])) for number in ending),
                used=False,
            )

    def take_back(
        self,
        pool: str,
        number: int,
        report: Report | None,
        tried: Sequence[str] = (),
        use_end: UseEnd | None = None,
        *,
        completed: bool = False,
    ) -> list[SentAway]:
        """Give one back; the members that this sends away."""
        return self._pool(pool).take_back(number, report, tried, use_end, completed=completed)

    def write(self) -> None:
        for pool in self._pools.values():
            pool.write()

    def _pool(self, name: str) -> "_PoolReturns":
        known = self._pools.get(name)
        if known is None:
            known = self._pools[name] = _PoolReturns(PoolMembers(self._act, name))
        return known


class _PoolReturns:
    def __init__(self, members: PoolMembers) -> None:
        self.members, self._given_back = members, False
        self._strikers: dict[str, set[str]] = {}

    def take_back(
        self,
        number: int,
        report: Report | None,
        tried: Sequence[str],
        use_end: UseEnd | None,
        *,
        completed: bool,
    ) -> list[SentAway]:
        members, destination = self.members, None if report is None else report.destination
        if members.member(number) is None:
            return []
        self._given_back = True
        if use_end is not None:
            members.end_use(number, use_end)
        member = members.known[number]
        strikers = sorted(self._strikers_of(destination))
        room = report is None or not may_eject(member, members.rules, report) or self._has_room(number)
        now = members.act.now
        back = given_back(
            member, members.rules, report, now, tried=tried, strikers=strikers, room=room, completed=completed
        )
        members.change(number, back.member)
        for name in back.forgiven:
            self._forgive(name, back.struck)
        if destination is not None and back.strike is not None:
            self._strike(destination, member.name, back.strike)
        found = [self._outdone(name) for name in back.outdone]
        return [away for away in found if away is not None]

    def write(self) -> None:
        self.members.write()
        if self._given_back:
            self.members.ring()
            self._given_back = False

    def _has_room(self, number: int) -> bool:
        members = self.members
        members.write()
        enabled: Any = members.act.one("member_enabled", members.pool)
        ejected: Any = members.act.one("member_blacklisted", members.pool, members.act.now, number)
        return room_on_blacklist(members.rules, enabled[0], ejected[0])

    def _outdone(self, name: str) -> SentAway | None:
        members, number = self.members, self.members.named(name)
        if number is None:
            return None
        member, others, room = members.known[number], list[int](), True
        if may_send_away(member, members.act.now):
            room = self._has_room(number)
            rows: Iterable[Any] = members.act.rows("member_compared", members.pool, number)
            others = [row[0] for row in rows]
        after, away = outdone(member, members.rules, members.act.now, others=others, room=room)
        members.change(number, after)
        return away

    def _forgive(self, name: str, struck: bool) -> None:
        number = self.members.named(name)
        if number is not None:
            self.members.change(number, forgiven(self.members.known[number], struck=struck))

    def _strikers_of(self, destination: str | None) -> set[str]:
        if destination is None:
            return set()
        known = self._strikers.get(destination)
        if known is None:
            act, since = self.members.act, self.members.act.now - STRIKES_KEPT
            rows: Iterable[Any] = act.rows("strike_list", self.members.pool, destination, since)
            known = self._strikers[destination] = {row[0] for row in rows}
        return known

    def _strike(self, destination: str, name: str, failed: bool) -> None:
        strikers, act = self._strikers_of(destination), self.members.act
        if failed:
            strikers.add(name)
            act.run("strike_add", self.members.pool, destination, name, act.now)
        elif strikers:
            strikers.clear()
            act.run("strike_forget", self.members.pool, destination)
