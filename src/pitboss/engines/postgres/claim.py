"""Claiming: what the plan says is done first, then slots that want the same are filled together."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pitboss.engines.postgres import control
from pitboss.engines.postgres.claim_group import Group, GroupClaim, Numbered, Shared, define_claims, grouped
from pitboss.engines.postgres.claim_keyed import claim_keyed
from pitboss.engines.postgres.claim_plan import ClaimPlan, ClaimPlans
from pitboss.engines.postgres.claim_with_resources import Taken, claim_with_resources
from pitboss.engines.postgres.connections import Connections
from pitboss.engines.postgres.keyed_tasks import define_keyed_claims
from pitboss.engines.postgres.ready_members import MemberGrants
from pitboss.engines.postgres.rows import claim as claim_of
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Again, Script, Statements
from pitboss.model.batching import PASSED_BY
from pitboss.model.duration import Moment
from pitboss.model.errors import StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.resource import Shortage
from pitboss.model.session import Claimed, ClaimRequest
from pitboss.model.task import Claim

_ATTEMPTS = 10
# Retry after 10 ms: the other transaction has usually committed by then.
_CONTENDED = 10_000


class _Drawn(NamedTuple):
    """`more`: running batches have more items to draw. `again`: claim again at this moment, as all items that were
    drawn are due later."""

    more: bool = False
    again: Moment | None = None


class _Planned(NamedTuple):
    """A claim that is planned: one plan for each group, and what was drawn for it. `keyed_drawn`: in queues with
    partitions too."""

    groups: list[Group]
    plans: list[ClaimPlan]
    drawn: _Drawn | None
    keyed_drawn: bool

    @property
    def keys(self) -> list[str]:
        """The keys under which claims may be given again."""
        return list({slot.repeat: None for group in self.groups for _, slot in group.slots if slot.repeat is not None})

    @property
    def locked(self) -> bool:
        """Whether it needs a transaction."""
        return len(self.groups) > 1 or bool(self.keys) or any(plan.locks for plan in self.plans)


class _Filled(NamedTuple):
    """What each group was given, and the plans for the next claim. `repeats`: what slots with known keys get."""

    plans: list[ClaimPlan]
    parts: list[Claimed | Taken]
    next_due: Moment | None
    shortages: tuple[Shortage, ...]
    repeats: "_Repeats"

    def claimed(self) -> Claimed:
        """Only when the transaction is over: rows of tasks may come with its commit."""
        claims = [claim for part in self.parts for claim in (part.claims() if isinstance(part, Taken) else part.claims)]
        missed = [part.now + _CONTENDED for part in self.parts if isinstance(part, Taken) and part.missed]
        next_due = min([*missed, *([] if self.next_due is None else [self.next_due])], default=None)
        partitioned = any(plan.keyed for plan in self.plans)
        return Claimed(self.repeats.added_to(claims), next_due, self.shortages, partitioned)


class _Repeats:
    """Claims that slots get because of their key: those under it that still run, or those of an earlier slot of the
    request with the same key."""

    def __init__(self, known: Mapping[str, list[Claim]]) -> None:
        self._known = known
        # Key -> the slot that has just got claims under it.
        self._given: dict[str, int] = {}
        self._copies: list[tuple[int, str]] = []

    def left(self, group: Group) -> Group:
        """The group without the slots that get their claims from here."""
        kept: list[Numbered] = []
        for number, slot in group.slots:
            if slot.repeat is not None and (slot.repeat in self._known or slot.repeat in self._given):
                self._copies.append((number, slot.repeat))
            else:
                kept.append((number, slot))
        return group._replace(slots=kept)

    def note(self, group: Group, part: "Claimed | Taken") -> None:
        given = part.numbers if isinstance(part, Taken) else {claim.slot for claim in part.claims}
        if group.lasts is not None:
            self._given |= {slot.repeat: n for n, slot in group.slots if slot.repeat is not None and n in given}

    def added_to(self, claims: list[Claim]) -> list[Claim]:
        if not self._copies:
            return claims
        copies = [
            replace(claim, slot=number, leased=None)
            for number, key in self._copies
            for claim in self._known.get(key) or _by_id(claims, self._given[key])
        ]
        return sorted([*claims, *copies], key=lambda claim: claim.slot)


def _by_id(claims: list[Claim], slot: int) -> list[Claim]:
    return sorted((claim for claim in claims if claim.slot == slot), key=lambda claim: claim.id)


class _Drew:
    """Expired items of batches must be cancelled first. What was drawn stays drawn."""

    def __init__(self, plans: list[ClaimPlan], late: Sequence[TaskId]) -> None:
        self.plans, self.late = plans, late


class _Replanned(_Drew, Again):
    """A plan was wrong, or expired items must be cancelled first. Nothing was done."""


class Claimer:
    """The claims of one engine. It remembers what the queues were, and plans the next claim by that."""

    def __init__(self, sql: Statements, connections: Connections, before_commit: Callable[[], None]) -> None:
        self._sql, self._connections, self._before_commit = sql, connections, before_commit
        self._plans = ClaimPlans()
        define_claims(sql)
        define_keyed_claims(sql)

    async def claim(self, request: ClaimRequest, now: Moment | None) -> Claimed:
        groups = grouped(request)
        keys = [group.key for group in groups]
        plans = self._plans.of(keys)
        drawn: _Drawn | None = None
        keyed_drawn = False
        for _ in range(_ATTEMPTS):
            if drawn is None and any(plan.drawable for plan in plans):
                drawn = await self._connections.call(lambda: _draw(self._sql, request, now), transaction=True)
            answer = await self._fill(_Planned(groups, plans, drawn, keyed_drawn), request, now)
            plans = answer.plans
            keyed_drawn = keyed_drawn or not isinstance(answer, _Replanned)
            if isinstance(answer, _Filled):
                self._plans.note(keys, plans)
                return answer.claimed()
            if answer.late:
                await self._expire(answer.late, now)
        raise StoreUnavailable(
            "the claim could not be finished", why="ten attempts hit a conflict", fix="claim again; nothing was given"
        )

    async def _fill(self, planned: _Planned, request: ClaimRequest, now: Moment | None) -> _Filled | _Drew:
        return await self._connections.call(
            lambda: _fill(self._sql, planned, request, now),
            transaction=planned.locked,
            before_commit=self._before_commit,
        )

    async def _expire(self, late: Sequence[TaskId], now: Moment | None) -> None:
        await self._connections.call(
            lambda: control.expire(self._sql, late, now), transaction=True, before_commit=self._before_commit
        )


def _draw(sql: Statements, request: ClaimRequest, now: Moment | None) -> Script[_Drawn]:
    """Make items of running batches pending, as many as the claim wants. Within a transaction of its own, before the
    claim: batches are locked before tasks, and settlements wait for that lock."""
    queues = _asked_queues(request)
    found = yield sql.ask("batch_draw_open", now, session=request.session, **queues)
    if not found:
        return _Drawn()
    wanted = sum(slot.free + slot.ahead for slot in request.slots)
    ids = texts([row[0] for row in found])
    asked = sql.ask("batch_draw_items", now, ids=ids, wanted=wanted, beyond=PASSED_BY, **queues)
    ((number, pending, more, moment),) = yield asked
    return _Drawn(more, moment if number and not pending and more else None)


def _fill(sql: Statements, planned: _Planned, request: ClaimRequest, now: Moment | None) -> Script[_Filled | _Drew]:
    """Fill the slots in order."""
    drawn = planned.drawn
    repeats = _Repeats((yield from _given_again(sql, planned.keys, now)))
    shared = Shared(drawn=planned.keyed_drawn)
    if any(plan.keyed for plan in planned.plans):
        yield from _lock_keyed(sql, shared, request)
    claims = [
        GroupClaim(sql, group, plan, now, drawn=drawn is not None, shared=shared)
        for group, plan in zip(planned.groups, planned.plans, strict=True)
    ]
    parts: list[Claimed | Taken] = []
    for claim in claims:
        claim.group = repeats.left(claim.group)
        part = yield from _fill_group(claim, locked=planned.locked)
        if part is None:
            keeps = claim.plan.keyed and claim.late and not parts
            return (_Drew if keeps else _Replanned)([one.plan for one in claims], claim.late)
        repeats.note(claim.group, part)
        parts.append(part)
    shortages, waits = yield from _shortages([part.grants for part in parts if isinstance(part, Taken)])
    next_due = min([part.next_due for part in parts if part.next_due is not None] + waits, default=None)
    plans = [claim.plan for claim in claims]
    if drawn is not None:
        # The statements did not look for items to draw.
        plans = [plan._replace(drawable=drawn.more) for plan in plans]
        next_due = next_due if drawn.again is None else drawn.again
    return _Filled(plans, parts, next_due, shortages, repeats)


def _lock_keyed(sql: Statements, shared: Shared, request: ClaimRequest) -> Script[None]:
    """Lock queues with partitions, and batches that have items to draw there: for all groups, before any task."""
    queues = _asked_queues(request)
    yield sql.ask("queue_lock_keyed", **queues).into(shared.queues)
    if not shared.drawn:
        yield sql.ask("batch_lock_keyed", **queues).into(shared.batches)


def _given_again(sql: Statements, keys: Sequence[str], now: Moment | None) -> Script[dict[str, list[Claim]]]:
    """The claims under these keys that still run: their answer was lost. Another request with one of these keys waits
    until this one is committed."""
    found: defaultdict[str, list[Claim]] = defaultdict(list)
    if keys:
        yield sql.ask("claim_lock_keys", keys=texts(keys)).unheard()
        for key, session, began, ends, *row in (yield sql.ask("claim_again", now, keys=texts(keys))):
            found[key].append(claim_of(tuple(row), session, began, 0, ends=ends))
    return found


def _fill_group(claim: GroupClaim, *, locked: bool) -> Script[Claimed | Taken | None]:
    if claim.plan.keyed:
        return (yield from claim_keyed(claim))
    if not claim.plan.pooled:
        claimed = yield from (claim.rated() if claim.plan.rated else claim.plain())
        replanned = claim.plan.drawable or claim.plan.keyed or not claim.plan.pooled
        if claimed is not None or not locked or claim.late or replanned:
            return claimed
    return (yield from claim_with_resources(claim))


def _asked_queues(request: ClaimRequest) -> dict[str, object]:
    """All queues that a request asks for: those by name `besides` all others."""
    named = names(name for slot in request.slots for name in slot.queues or ())
    others = any(slot.queues is None for slot in request.slots)
    return {"queues": None, "besides": named} if others else {"queues": named, "besides": "{}"}


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
