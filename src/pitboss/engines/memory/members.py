"""One resource pool: its members, and what is derived from them. Every change goes through `write`."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence

from pitboss.model.duration import Moment
from pitboss.model.leasing import (
    Moved,
    Nth,
    avoided,
    ended,
    granted,
    in_service,
    limits_of,
    most_remembered,
    moved,
    open_span,
    placed,
    restated,
    shortage,
    turn_floor,
    used,
)
from pitboss.model.member_health import STRIKES_KEPT, forgiven, given_back, may_eject, room_on_blacklist
from pitboss.model.outdone import SentAway, may_send_away, outdone
from pitboss.model.picking import Departed, ReadyMembers, added, departed, nth_of
from pitboss.model.pool_rules import effective
from pitboss.model.resource import (
    Declaration,
    NewResource,
    OperatorLimits,
    PoolRules,
    Report,
    Resource,
    ResourcePool,
    Shortage,
    Stage,
    UseEnd,
    Want,
)


class PoolMembers:
    """A pool with its members. It has no clock: callers pass the moment, and call `wake` before they read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules = PoolRules()
        self.declared: Declaration | None = None
        self.limited: OperatorLimits | None = None
        self.all: dict[str, Resource] = {}
        self.ready = ReadyMembers()
        self._away: list[tuple[Moment, str]] = []
        self._stages: dict[Stage, int] = {}
        self._uses: dict[str, list[Moment]] = defaultdict(list)
        # Key -> the member that the key is bound to, and until when.
        self._bound: dict[str, tuple[str, Moment]] = {}
        # Destination -> the members that failed there, and when.
        self._strikes: dict[str, dict[str, Moment]] = {}
        # Removed members by name, while their uses count.
        self._departed: dict[str, Departed] = {}
        # Labels -> how many members in service have them, at a moment.
        self._carrying: dict[tuple[str, ...], tuple[int, Moment | None]] = {}
        self._woken_at: Moment = 0

    def write(self, member: Resource) -> Resource:
        """Store the member, and update everything derived from it."""
        old = self.all.get(member.name)
        if old is not None:
            self._leave(old)
        self.all[member.name] = member
        self._stages[member.stage] = self._stages.get(member.stage, 0) + 1
        self.ready.put(member)
        if member.stage is Stage.AWAY:
            insort(self._away, (member.available_at, member.name))
        if old is None or _serving(old) != _serving(member):
            self._carrying.clear()
        return member

    def add(self, new: NewResource, turn: int, now: Moment) -> None:
        """Add a new member; what is remembered of a removed one of its name counts."""
        before = self._departed.pop(new.name, None)
        before = before if before is not None and before.until > now else None
        if before is not None:
            self._uses[new.name] = list(before.uses)
        self.write(added(self.name, new, self.rules, turn, now, before))

    def remove(self, name: str, now: Moment) -> None:
        member = self.all.pop(name)
        self._leave(member)
        self._departed = {one: kept for one, kept in self._departed.items() if kept.until > now}
        gone = departed(member, self.rules, nth_of(self._uses.pop(name, [])), now)
        if gone is not None:
            self._departed[name] = gone
        self._carrying.clear()

    def wake(self, now: Moment) -> None:
        """Make members ready whose time has come. A clock that was set back sends some away again."""
        if now < self._woken_at:
            for member in list(self.all.values()):
                self.write(placed(member, self.rules, now))
        self._woken_at = now
        while self._away and self._away[0][0] <= now:
            self.write(placed(self.all[self._away[0][1]], self.rules, now))

    def nth(self, name: str) -> Nth:
        return nth_of(self._uses[name])

    def lowest_turn(self) -> int:
        return min((member.record.turn for member in self.all.values()), default=0)

    def set_rules(self, now: Moment) -> None:
        """After a change of what is declared, or of an operator's limits."""
        rules = effective(self.declared, self.limited)
        if rules == self.rules:
            return
        self.rules = rules
        for member in list(self.all.values()):
            self.write(restated(member, rules, self.nth(member.name), now))

    def view(self) -> ResourcePool:
        return ResourcePool(
            name=self.name,
            rules=self.rules,
            stages=dict(self._stages),
            next_at=self._next_at(),
            declared=self.declared,
            limited=self.limited,
        )

    def shortage(self) -> Shortage:
        return shortage(self.name, self._stages, self._next_at())

    def choose(self, want: Want, tried: Sequence[str], now: Moment) -> Resource | None:
        """The member for a task, or None if it must wait for one."""
        return self.ready.choose(want, self.avoided(want, tried, now), self._bound_to(want.key, now), self.rules)

    def avoided(self, want: Want, tried: Sequence[str], now: Moment) -> frozenset[str]:
        return avoided(tried, self._carrying_all(want.labels, now)) if tried else frozenset()

    def turn_floor(self) -> int:
        """For grants of one act, before the first of them."""
        return turn_floor(self.ready.last())

    def grant(self, member: Resource, want: Want, now: Moment, floor: int = 0) -> Resource:
        """Give the member to a task or lease: this is a use, and binds the key if the want has one."""
        given = self.write(granted(member, self.rules, self.nth(member.name), now, floor))
        self._remember(given)
        if want.key is not None:
            self._bound[want.key] = (member.name, now + self.rules.bound_for)
        return given

    def use(self, member: Resource, instead: Moment | None, now: Moment) -> Moment | Shortage:
        """Count one more use by the holder, or move an earlier one. Answers the moment of the use, or until when the
        limits forbid it."""
        change = None if instead is None else moved(member, self.rules, self.nth(member.name), instead, now)
        if isinstance(change, Moved):
            self._move(change)
            return change.at - open_span(limits_of(member, self.rules))
        if change is not None or member.available_at > now:
            until = member.available_at if change is None else change
            return Shortage(pool=self.name, why="all away", until=until)
        after = self._remember(self.write(used(member, self.rules, self.nth(member.name), now)))
        return after.last_used_at - open_span(limits_of(after, self.rules))

    def end_use(self, member: Resource, end: UseEnd, now: Moment) -> Resource:
        """The member after the end of an open use."""
        change = ended(member, self.rules, self.nth(member.name), end, now)
        return member if change is None else self._move(change)

    def hand_back(
        self, member: Resource, report: Report | None, tried: Sequence[str], now: Moment, *, completed: bool = False
    ) -> list[SentAway]:
        """Take the member back from its holder, together with the holder's report; the members that it sends away."""
        destination = None if report is None else report.destination
        strikers = [] if destination is None else self._strikers(destination, now)
        room = report is None or not may_eject(member, self.rules, report) or self._room_on_blacklist(member, now)
        back = given_back(
            member, self.rules, report, now, tried=tried, strikers=strikers, room=room, completed=completed
        )
        self.write(back.member)
        for name in back.forgiven:
            if name in self.all:
                self.write(forgiven(self.all[name], struck=back.struck))
        if destination is not None and back.strike is not None:
            if back.strike:
                self._strikes.setdefault(destination, {})[member.name] = now
            else:
                self._strikes.pop(destination, None)
        found = [self._outdone(self.all[name], now) for name in back.outdone if name in self.all]
        return [away for away in found if away is not None]

    def _outdone(self, member: Resource, now: Moment) -> SentAway | None:
        others, room = list[int](), True
        if may_send_away(member, now):
            others = [one.record.compared for one in self.all.values() if one.enabled and one.name != member.name]
            room = self._room_on_blacklist(member, now)
        after, away = outdone(member, self.rules, now, others=others, room=room)
        self.write(after)
        return away

    def _strikers(self, destination: str, now: Moment) -> list[str]:
        """The members that failed there lately; earlier strikes are forgotten."""
        strikes = {name: at for name, at in self._strikes.pop(destination, {}).items() if at > now - STRIKES_KEPT}
        if strikes:
            self._strikes[destination] = strikes
        return list(strikes)

    def _room_on_blacklist(self, member: Resource, now: Moment) -> bool:
        enabled = [one for one in self.all.values() if one.enabled]
        ejected = sum(one.record.blacklisted_until > now for one in enabled if one.name != member.name)
        return room_on_blacklist(self.rules, len(enabled), ejected)

    def bound(self, key: str, now: Moment) -> str | None:
        """The name of the member that the key is bound to."""
        name, until = self._bound.get(key, ("", 0))
        return name if until > now else None

    def _bound_to(self, key: str | None, now: Moment) -> Resource | None:
        name = None if key is None else self.bound(key, now)
        return None if name is None else self.all.get(name)

    def _carrying_all(self, labels: tuple[str, ...], now: Moment) -> int:
        """How many members in service have all these labels."""
        count, at = self._carrying.get(labels, (0, None))
        if at != now:
            wanted = set(labels)
            count = sum(in_service(one, now) and wanted <= set(one.labels) for one in self.all.values())
            self._carrying[labels] = count, now
        return count

    def _remember(self, member: Resource) -> Resource:
        uses = self._uses[member.name]
        insort(uses, member.last_used_at)
        del uses[: -most_remembered(limits_of(member, self.rules)) or None]
        return member

    def _move(self, change: Moved) -> Resource:
        uses = self._uses[change.member.name]
        uses[len(uses) - len(change.newest) :] = change.newest
        return self.write(change.member)

    def _next_at(self) -> Moment | None:
        return self._away[0][0] if self._away else None

    def _leave(self, member: Resource) -> None:
        self.ready.remove(member.name)
        self._stages[member.stage] -= 1
        if not self._stages[member.stage]:
            del self._stages[member.stage]
        if member.stage is Stage.AWAY:
            del self._away[bisect_left(self._away, (member.available_at, member.name))]


def _serving(member: Resource) -> tuple[object, ...]:
    return member.enabled, member.labels, member.record.cooldown_until, member.record.blacklisted_until
