"""Engines that are wrong about members and leases."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec.structs import replace

from pitboss.engines.memory.members import PoolMembers
from pitboss.model.duration import Moment, Span
from pitboss.model.leasing import placed
from pitboss.model.outdone import SentAway
from pitboss.model.resource import Leased, Report, Resource, Shortage, Stage, Want
from pitboss.model.settlement import APPLIED, SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Task
from tests.races.planted import Planted

_LIMITS, _AWAY, _GIVEN_BACK = "limit of a member", "cooling or disabled", "given back, once"


class PlantedPool(Planted):
    """A bug in the pools. `members` are the pools of this engine."""

    members: ClassVar[type[PoolMembers]] = PoolMembers

    def _created_pool(self, name: str) -> PoolMembers:
        self.tables.pools.setdefault(name, self.members(name))
        return self._pool(name)


class _Forgetful(PoolMembers):
    def nth(self, name: str) -> Callable[[int], Moment | None]:
        return lambda n: None


class WindowsForgotten(PlantedPool):
    """No use is remembered."""

    breaks = _LIMITS
    members = _Forgetful


class _Gapless(PoolMembers):
    def grant(self, member: Resource, want: Want, now: Moment, floor: int = 0) -> Resource:
        rules = self.rules
        self.rules = replace(rules, limits=replace(rules.limits, min_delay=0))
        try:
            return super().grant(member, want, now, floor)
        finally:
            self.rules = rules


class GapForgotten(PlantedPool):
    """Two uses may follow each other at once."""

    breaks = _LIMITS
    members = _Gapless


class _Shared(PoolMembers):
    def write(self, member: Resource) -> Resource:
        return super().write(placed(replace(member, in_use=0), self.rules, self._woken_at))


class NeverBusy(PlantedPool):
    """A grant does not count as in use."""

    breaks = _LIMITS
    members = _Shared


class _Unreported(PoolMembers):
    def hand_back(
        self, member: Resource, report: Report | None, tried: Sequence[str], now: Moment, *, completed: bool = False
    ) -> list[SentAway]:
        return super().hand_back(member, None, tried, now)


class RefusalsUnheard(PlantedPool):
    """A member that was refused is given to the next one at once."""

    breaks = _AWAY
    members = _Unreported


class _Shortening(PoolMembers):
    def hand_back(
        self, member: Resource, report: Report | None, tried: Sequence[str], now: Moment, *, completed: bool = False
    ) -> list[SentAway]:
        record = replace(member.record, cooldown_until=0)
        return super().hand_back(replace(member, record=record, available_at=0), report, tried, now)


class CooldownShortened(PlantedPool):
    """The last one to speak of a member decides how long it rests."""

    breaks = f"{_AWAY}|{_LIMITS}"
    members = _Shortening


class _Hiring(PoolMembers):
    def write(self, member: Resource) -> Resource:
        return super().write(replace(member, stage=Stage.READY) if member.stage is Stage.OUT else member)


class DisabledButReady(PlantedPool):
    """Disabling a member is shown, and not acted upon."""

    breaks = _AWAY
    members = _Hiring


class _Greedy(PoolMembers):
    def hand_back(
        self, member: Resource, report: Report | None, tried: Sequence[str], now: Moment, *, completed: bool = False
    ) -> list[SentAway]:
        return super().hand_back(replace(member, in_use=member.in_use + 1), report, tried, now)


class NeverGivenBack(PlantedPool):
    """The report on a use is written, but the member stays in use."""

    breaks = _GIVEN_BACK
    members = _Greedy


class LossKeepsTheMember(PlantedPool):
    """A task that is lost keeps its member for ever."""

    breaks = _GIVEN_BACK

    def _lose(self, task: Task, now: Moment) -> State:
        return super()._lose(replace(task, resource=None), now)


class GivenBackTwice(PlantedPool):
    """A settlement that is repeated gives the member back again, although another task has it now."""

    breaks = _LIMITS

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        ours = task is not None and (task.session, task.claim) == (settlement.token.session, settlement.token.claim)
        over = ours and task is not None and task.finished_at is not None
        verdict = super()._settle(settlement, now)
        if over and task is not None and verdict == APPLIED:
            self.hand_back(task, None, now, completed=False)
        return verdict


class TheStaleGiveBack(PlantedPool):
    """A writer that was replaced is refused, but its member is given back."""

    breaks = _LIMITS

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        verdict = super()._settle(settlement, now)
        if task is not None and not verdict.applied:
            self.hand_back(task, None, now, completed=False)
        return verdict


class _Uncounted(PoolMembers):
    def use(self, member: Resource, instead: Moment | None, now: Moment) -> Moment | Shortage:
        return now if instead is None else super().use(member, instead, now)


class FurtherUsesUncounted(PlantedPool):
    """Only the first use of a lease counts."""

    breaks = _LIMITS
    members = _Uncounted


class _Unmoved(PoolMembers):
    def use(self, member: Resource, instead: Moment | None, now: Moment) -> Moment | Shortage:
        return super().use(member, instead, now) if instead is None else now


class MovedUsesStayWhereTheyWere(PlantedPool):
    """A use that is made later than it was granted counts from when it was granted."""

    breaks = _LIMITS
    members = _Unmoved


class LeasesNeverEnd(PlantedPool):
    """A lease that is not released keeps the member."""

    breaks = _GIVEN_BACK

    def end_old_leases(self, limit: int, now: Moment) -> int:
        return 0


class AskingAgainTakesAnother(PlantedPool):
    """A lease that is asked for again, under its name, takes one more member, and forgets the first."""

    breaks = _GIVEN_BACK

    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        self.tables.leases.pop(lease, None)
        return await super().acquire(pool, want, hold, lease=lease)


POOL_BUGS: list[type[Planted]] = [*PlantedPool.__subclasses__()]
