"""When may a member be used? Computed from the raw log of its uses, by the definition of the limits alone.

Where the definition is not exact (which part of the jitter a gap gets, which old uses a longer window still counts),
there are two answers: no use may start before `not_before`, and from `surely_from` on a use must be possible. Without
jitter and without changes of the rules they are equal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pitboss.model.duration import Moment
from pitboss.model.resource import Limits, PoolRules, Report, ResourceOutcome, UseEnd, Want

_FAULTS = (ResourceOutcome.BLOCKED, ResourceOutcome.RESOURCE_ERROR)
_NOT_FAILED = (ResourceOutcome.OK, ResourceOutcome.RATE_LIMITED)
_KEPT, _COMPARED = 16, 32


@dataclass
class Member:
    """What has happened to one member."""

    name: str
    labels: frozenset[str] = frozenset()
    own: Limits | None = None
    enabled: bool = True
    in_use: int = 0
    uses: list[Moment] = field(default_factory=list)
    ends: list[Moment] = field(default_factory=list)
    # Uses that its windows still count.
    remembered: list[Moment] = field(default_factory=list)
    failures: int = 0
    cooldowns: int = 0
    cooling_until: Moment = 0
    ejections: int = 0
    ejected_until: Moment = 0
    # The newest uses by tasks that succeeded, with this member (False) or with another (True).
    compared: list[bool] = field(default_factory=list)


@dataclass
class Job:
    """A task, or a lease outside a task, as far as members are concerned."""

    id: str
    want: Want = field(default_factory=Want)
    tried: tuple[str, ...] = ()

    def after(self, name: str, report: Report | None) -> None:
        if report is not None and report.outcome not in _NOT_FAILED:
            self.tried = (*(one for one in self.tried if one != name), name)[-_KEPT:]


class Oracle:
    """A pool, computed from its log. Every question gets the time of the store's clock."""

    def __init__(self, rules: PoolRules, members: Iterable[Member]) -> None:
        self.rules = rules
        self.members = {member.name: member for member in members}
        self.bound: dict[str, tuple[str, Moment]] = {}

    def limits(self, member: Member) -> Limits:
        return self.rules.limits if member.own is None else member.own

    def has_room(self, member: Member) -> bool:
        most = 1 if member.ejections else self.limits(member).concurrency
        return member.enabled and (most is None or member.in_use < most)

    def not_before(self, member: Member, *, rested: bool = False) -> Moment:
        limits = self.limits(member)
        waits = [member.cooling_until, member.ejected_until, *_windows(limits, member.remembered)]
        if limits.delay_from == "start" and limits.min_delay and not rested:
            waits += [at + limits.min_delay + limits.guard for at in member.uses[-1:]]
        if limits.delay_from == "end" and limits.min_delay:
            waits += [at + limits.min_delay for at in member.ends[-1:]]
        return max(waits)

    def surely_from(self, member: Member) -> Moment:
        limits = self.limits(member)
        gap = limits.min_delay + limits.jitter
        waits = [member.cooling_until, member.ejected_until, *_windows(limits, member.uses)]
        if limits.delay_from == "start" and gap and member.uses:
            waits.append(max(member.uses) + gap + limits.guard)
        if limits.delay_from == "end" and gap and member.ends:
            waits.append(max(member.ends) + gap)
        return max(waits)

    def openings(self) -> dict[str, Moment]:
        """The moments from which members with room can certainly be used."""
        return {member.name: self.surely_from(member) for member in self.members.values() if self.has_room(member)}

    def candidates(self, job: Job, now: Moment) -> list[Member]:
        """The members of which the job must get one as soon as it can be used."""
        bound = self._bound(job, now)
        free = [member for member in self.members.values() if self.fits(member, job, now)]
        if bound is None:
            return free
        if self.rules.away == "wait":
            return [bound]
        return [bound, *(member for member in free if member.name not in job.tried)]

    def objection(self, name: str, job: Job, now: Moment) -> str | None:
        """Why this member must not be given to this job now."""
        member = self.members[name]
        bound = self._bound(job, now)
        if bound is None and not self.fits(member, job, now):
            return f"{name} does not fit {job}"
        if bound is not None and bound is not member and not self._may_rebind(bound, member, job, now):
            return f"{name} was given to {job}, whose key has {bound.name}"
        if not self.has_room(member):
            return f"{name} is disabled or in use {member.in_use} times"
        return self.too_early(name, now)

    def too_early(self, name: str, now: Moment, *, rested: bool = False) -> str | None:
        opens = self.not_before(self.members[name], rested=rested)
        return f"{name} was used at {now}, {opens - now} µs too early" if now < opens else None

    def fits(self, member: Member, job: Job, now: Moment) -> bool:
        labels = frozenset(job.want.labels)
        like = sum(self._in_service(one, now) and labels <= one.labels for one in self.members.values())
        avoided = job.tried[-(like - 1) :] if like > 1 else ()
        return labels <= member.labels and member.name not in avoided

    def _in_service(self, member: Member, now: Moment) -> bool:
        return member.enabled and member.cooling_until <= now and member.ejected_until <= now

    def use(self, name: str, at: Moment, now: Moment) -> None:
        """A use that counts from `at`, which is later than now while it is open."""
        member = self.members[name]
        member.uses.append(at)
        member.remembered.append(at)
        self._forget(member, now)

    def end_use(self, name: str, end: UseEnd | None, now: Moment) -> None:
        """A use that is remembered counts from its end."""
        member = self.members[name]
        for uses in (member.uses, member.remembered):
            if end is not None and end.at in uses:
                uses[uses.index(end.at)] = min(end.at, now)

    def newest(self, member: Member) -> list[Moment]:
        """The uses that its windows count."""
        most = max((window.count for window in self.limits(member).windows), default=0)
        return sorted(member.uses)[-most:] if most else list(member.uses)

    def without(self, member: Member, at: Moment) -> Member:
        """The member as it would be without that use."""
        uses, remembered = list(member.uses), list(member.remembered)
        uses.remove(at)
        if at in remembered:
            remembered.remove(at)
        return replace(member, uses=uses, remembered=remembered)

    def give(self, name: str, job: Job, at: Moment, now: Moment) -> None:
        self.use(name, at, now)
        self.members[name].in_use += 1
        if job.want.key is not None:
            self.bound[job.want.key] = name, now + self.rules.bound_for

    def take_back(self, name: str, job: Job, report: Report | None, now: Moment, *, completed: bool = False) -> None:
        member = self.members[name]
        member.in_use -= 1
        member.ends.append(now)
        if report is not None:
            self._judge(member, report, job.tried, now)
            if completed:
                self._compare(member, job.tried, now)
        job.after(name, report)

    def change_rules(self, rules: PoolRules, now: Moment) -> None:
        for member in self.members.values():
            self._forget(member, now)
        self.rules = rules

    def change_limits(self, name: str, own: Limits | None, now: Moment) -> None:
        self._forget(self.members[name], now)
        self.members[name].own = own

    def reset(self, name: str) -> None:
        member = self.members[name]
        member.failures = member.cooldowns = member.ejections = 0
        member.cooling_until = member.ejected_until = 0
        member.compared = []

    def _bound(self, job: Job, now: Moment) -> Member | None:
        name, until = self.bound.get(job.want.key or "", ("", 0))
        member = self.members.get(name)
        if member is None or until <= now or not frozenset(job.want.labels) <= member.labels:
            return None
        return member

    def _may_rebind(self, bound: Member, other: Member, job: Job, now: Moment) -> bool:
        ready = self.has_room(bound) and self.surely_from(bound) <= now
        return self.rules.away == "rebind" and not ready and self.fits(other, job, now)

    def _forget(self, member: Member, now: Moment) -> None:
        limits = self.limits(member)
        most = max((window.count for window in limits.windows), default=0)
        reach = max((window.per for window in limits.windows), default=0) + limits.guard
        newest = sorted(member.remembered)[-most:] if most else []
        member.remembered = [at for at in newest if at > now - reach]

    def _judge(self, member: Member, report: Report, tried: Sequence[str], now: Moment) -> None:
        outcome = report.outcome
        if outcome is ResourceOutcome.OK:
            if member.ejections and member.ejected_until <= now:
                member.compared = []
            member.failures = member.cooldowns = member.ejections = 0
        elif outcome is ResourceOutcome.RATE_LIMITED:
            self._cool(member, report, now)
        elif outcome in _FAULTS:
            others = {*tried} - {member.name}
            if len(others) < 2:
                self._blame(member, report, now)
            elif len(others) == 2:
                for other in others:
                    self.members[other].failures = max(0, self.members[other].failures - 1)

    def _blame(self, member: Member, report: Report, now: Moment) -> None:
        out = member.ejected_until > now
        member.failures += not out
        due = not out and (member.ejections > 0 or member.failures >= self.rules.max_failures)
        eject = due and self._blacklist_has_room(member, now)
        if report.outcome is ResourceOutcome.BLOCKED or (due and not eject):
            self._cool(member, report, now)
        if eject:
            self._eject(member, now)

    def _eject(self, member: Member, now: Moment) -> None:
        pause = min(self.rules.blacklist * 2**member.ejections, self.rules.blacklist_cap)
        member.failures, member.ejections = 0, member.ejections + 1
        member.ejected_until = now + pause

    def _compare(self, winner: Member, tried: Sequence[str], now: Moment) -> None:
        """A task has succeeded with this member, after it failed with those."""
        winner.compared = [*winner.compared, False][-_COMPARED:]
        for name in tried:
            member = self.members.get(name)
            if member is None or member is winner:
                continue
            member.compared = [*member.compared, True][-_COMPARED:]
            if member.ejected_until > now or not (member.ejections or self._is_at_fault(member)):
                continue
            if self._blacklist_has_room(member, now):
                self._eject(member, now)
            else:
                self._cool(member, Report(outcome=ResourceOutcome.RESOURCE_ERROR), now)

    def _is_at_fault(self, member: Member) -> bool:
        """By counting draws: its rate is above 13 %, and above twice that of the better quarter, with 95 %."""
        others = [one for one in self.members.values() if one.enabled and one is not member]
        rates = sorted(sum(one.compared) / len(one.compared) if one.compared else 0.0 for one in others)
        bar = max(0.13, 2 * rates[len(rates) // 4]) if rates else 0.13
        failed, ok = sum(member.compared), len(member.compared) - sum(member.compared)
        # A fine grid over all rates, weighed by how well each explains what was seen.
        grid = [(step + 0.5) / 4000 for step in range(4000)]
        weights = [rate**failed * (1 - rate) ** (ok + 4) for rate in grid]
        return sum(weight for rate, weight in zip(grid, weights, strict=True) if rate > bar) > 0.95 * sum(weights)

    def _cool(self, member: Member, report: Report, now: Moment) -> None:
        """Refusals during a cooldown belong to it; only a longer Retry-After changes it."""
        cooling, told = member.cooling_until > now, report.retry_after
        usual = 0 if cooling else self.rules.cooldown * 2**member.cooldowns
        pause = min(usual if told is None else told, self.rules.cooldown_cap)
        member.cooldowns += not cooling
        member.cooling_until = max(member.cooling_until, now + pause if pause else 0)

    def _blacklist_has_room(self, member: Member, now: Moment) -> bool:
        enabled = [one for one in self.members.values() if one.enabled]
        ejected = sum(one.ejected_until > now for one in enabled if one is not member)
        return ejected + 1 <= min(int(self.rules.max_ejected * len(enabled)), len(enabled) - 1)


def _windows(limits: Limits, uses: Sequence[Moment]) -> list[Moment]:
    """When each window has room again: when the use that fills it is as old as the window is long."""
    by_age = sorted(uses, reverse=True)
    full = [window for window in limits.windows if len(by_age) >= window.count]
    return [by_age[window.count - 1] + window.per + limits.guard for window in full]
