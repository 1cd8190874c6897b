"""Claiming: what the plan says is done first, then slots of the same queues are filled together."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pitboss.engines.postgres import control
from pitboss.engines.postgres.claim_group import Group, GroupClaim, grouped
from pitboss.engines.postgres.claim_plan import ClaimPlan, ClaimPlans
from pitboss.engines.postgres.claim_with_resources import Taken, claim_with_resources
from pitboss.engines.postgres.connections import Connections
from pitboss.engines.postgres.ready_members import MemberGrants
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Again, Script, Statements
from pitboss.model.batching import PASSED_BY
from pitboss.model.duration import Moment
from pitboss.model.errors import StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.resource import Shortage
from pitboss.model.session import Claimed, ClaimRequest

_ATTEMPTS = 10
# Retry after 10 ms: the other transaction has usually committed by then.
_CONTENDED = 10_000


class _Drawn(NamedTuple):
    """`more`: running batches have more items to draw. `again`: claim again at this moment, as all items that were
    drawn are due later."""

    more: bool = False
    again: Moment | None = None


class _Planned(NamedTuple):
    """A claim that is planned: one plan for each group, and what was drawn for it."""

    groups: list[Group]
    plans: list[ClaimPlan]
    drawn: _Drawn | None

    @property
    def locked(self) -> bool:
        """Whether it needs a transaction."""
        return len(self.groups) > 1 or any(plan.locks for plan in self.plans)


class _Filled(NamedTuple):
    """What each group was given, and the plans for the next claim."""

    plans: list[ClaimPlan]
    parts: list[Claimed | Taken]
    next_due: Moment | None
    shortages: tuple[Shortage, ...]

    def claimed(self) -> Claimed:
        """Only when the transaction is over: rows of tasks may come with its commit."""
        claims = [claim for part in self.parts for claim in (part.claims() if isinstance(part, Taken) else part.claims)]
        return Claimed(claims, self.next_due, self.shortages)


class _Replanned(Again):
    """A plan was wrong, or expired items of batches must be cancelled first."""

    def __init__(self, plans: list[ClaimPlan], late: Sequence[TaskId]) -> None:
        self.plans, self.late = plans, late


class Claimer:
    """The claims of one engine. It remembers what the queues were, and plans the next claim by that."""

    def __init__(self, sql: Statements, connections: Connections, before_commit: Callable[[], None]) -> None:
        self._sql, self._connections, self._before_commit = sql, connections, before_commit
        self._plans = ClaimPlans()

    async def claim(self, request: ClaimRequest, now: Moment | None) -> Claimed:
        groups = grouped(request)
        keys = [group.key for group in groups]
        plans = self._plans.of(keys)
        drawn: _Drawn | None = None
        for _ in range(_ATTEMPTS):
            if drawn is None and any(plan.drawable for plan in plans):
                drawn = await self._connections.call(lambda: _draw(self._sql, request, now), transaction=True)
            answer = await self._fill(_Planned(groups, plans, drawn), now)
            plans = answer.plans
            if isinstance(answer, _Filled):
                self._plans.note(keys, plans)
                return answer.claimed()
            if answer.late:
                await self._expire(answer.late, now)
        raise StoreUnavailable(
            "the claim could not be finished", why="ten attempts hit a conflict", fix="claim again; nothing was given"
        )

    async def _fill(self, planned: _Planned, now: Moment | None) -> _Filled | _Replanned:
        return await self._connections.call(
            lambda: _fill(self._sql, planned, now), transaction=planned.locked, before_commit=self._before_commit
        )

    async def _expire(self, late: Sequence[TaskId], now: Moment | None) -> None:
        await self._connections.call(lambda: control.expire(self._sql, late, now), transaction=True)


def _draw(sql: Statements, request: ClaimRequest, now: Moment | None) -> Script[_Drawn]:
    """Make items of running batches pending, as many as the claim wants. Within a transaction of its own, before the
    claim: batches are locked before tasks, and settlements wait for that lock."""
    queues = _asked_queues(request)
    found = yield sql.ask("batch_draw_open", now, session=request.session, queues=queues)
    if not found:
        return _Drawn()
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    ids = texts([row[0] for row in found])
    asked = sql.ask("batch_draw_items", now, ids=ids, queues=queues, wanted=wanted, beyond=PASSED_BY)
    ((number, pending, more, moment),) = yield asked
    return _Drawn(more, moment if number and not pending and more else None)


def _fill(sql: Statements, planned: _Planned, now: Moment | None) -> Script[_Filled | _Replanned]:
    """Fill the slots in order."""
    drawn = planned.drawn
    claims = [
        GroupClaim(sql, group, plan, now, drawn=drawn is not None)
        for group, plan in zip(planned.groups, planned.plans, strict=True)
    ]
    parts: list[Claimed | Taken] = []
    for claim in claims:
        part = yield from _fill_group(claim, locked=planned.locked)
        if part is None:
            return _Replanned([one.plan for one in claims], claim.late)
        parts.append(part)
    shortages, waits = yield from _shortages([part.grants for part in parts if isinstance(part, Taken)])
    next_due = min([part.next_due for part in parts if part.next_due is not None] + waits, default=None)
    plans = [claim.plan for claim in claims]
    if drawn is not None:
        # The statements did not look for items to draw.
        plans = [plan._replace(drawable=drawn.more) for plan in plans]
        next_due = next_due if drawn.again is None else drawn.again
    return _Filled(plans, parts, next_due, shortages)


def _fill_group(claim: GroupClaim, *, locked: bool) -> Script[Claimed | Taken | None]:
    if not locked:
        return (yield from claim.plain())
    if not claim.plan.pooled:
        claimed = yield from claim.rated()
        if claimed is not None or claim.late or claim.plan.drawable or not claim.plan.pooled:
            return claimed
    return (yield from claim_with_resources(claim))


def _asked_queues(request: ClaimRequest) -> str | None:
    """All queues that a request names, as an array literal; None stands for every queue."""
    if any(slot.queues is None for slot in request.slots):
        return None
    return names(name for slot in request.slots for name in slot.queues or ())


def _shortages(grants: list[MemberGrants]) -> Script[tuple[tuple[Shortage, ...], list[Moment]]]:
    """Which pools ran short, and when to ask again; soon where another transaction had members locked."""
    found: dict[str, Shortage] = {}
    moments: list[Moment] = []
    for one in grants:
        short = yield from one.shortages()
        found |= {shortage.pool: shortage for shortage in short}
        now = one.now or 0
        moments += [max(now, shortage.until) for shortage in short if shortage.until is not None]
        moments += [now + _CONTENDED] if one.contended else []
    return tuple(found[pool] for pool in sorted(found)), moments
