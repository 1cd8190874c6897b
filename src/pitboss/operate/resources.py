"""Resource pools and their members as people read them. Secrets appear by name only."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pitboss.engines.capabilities import resources_of
from pitboss.engines.protocol import Store
from pitboss.model.canonical import from_json
from pitboss.model.comparison import Evidence, at_fault, evidence, suspected
from pitboss.model.duration import Moment, Span, spoken
from pitboss.model.filter import by
from pitboss.model.ids import TaskId
from pitboss.model.leasing import condition, limits_of
from pitboss.model.resource import Condition, Limits, PoolRules, Resource, ResourceChange, no_such_member
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.text import masked, one_line
from pitboss.operate.pool_rules import RuleReading, find_pool, rule_readings

_HOLDERS = 5
_AWAY = frozenset({Condition.COOLING, Condition.BLACKLISTED})
_USABLE = frozenset({Condition.READY, Condition.BUSY, Condition.RESTING})
_LONGEST = 200


class MemberReading(msgspec.Struct, frozen=True, kw_only=True):
    """A member at one moment: its condition, when that ends, and why it is so. `limits` are its own or the pool's.

    `evidence` counts the tasks that failed with it and then succeeded with others. `at_fault`: by that it is to blame,
    also while the blacklist has no room for it. Its last use was at `used_at`; while that use is open, it ends at
    `open_until` at the latest.
    """

    member: Resource
    condition: Condition
    until: Moment | None
    why: str | None
    limits: Limits
    evidence: Evidence
    at_fault: bool
    used_at: Moment | None
    open_until: Moment | None

    @property
    def fields(self) -> dict[str, Any]:
        """The open fields; a password inside a URL is masked."""
        found = from_json(self.member.fields)
        return {
            key: masked(value) if isinstance(value, str) and "://" in value else value for key, value in found.items()
        }


class ResourcePoolReading(msgspec.Struct, frozen=True, kw_only=True):
    """A resource pool at one moment. `shortage` says why no member is ready; `steady` is uses per second in the long
    run, infinite without limits. `sources` says who set its rules, if it was read alone."""

    name: str
    rules: PoolRules
    members: tuple[MemberReading, ...]
    shortage: str | None
    steady: float
    queues: tuple[str, ...] = ()
    sources: tuple[RuleReading, ...] = ()

    def count(self, condition: Condition) -> int:
        return sum(one.condition is condition for one in self.members)

    @property
    def next_at(self) -> Moment | None:
        """When the next member can be used; None if one is ready, or the moment is unknown."""
        back = [one.until for one in self.members if one.until is not None]
        return min(back) if back and not self.count(Condition.READY) else None

    @property
    def usable(self) -> int:
        return sum(one.condition in _USABLE for one in self.members)

    @property
    def scarce(self) -> bool:
        """Whether more than half of its members cannot be used."""
        return self.usable * 2 < len(self.members)

    @property
    def back_at(self) -> Moment | None:
        """When the next member that is away comes back."""
        return min(
            (one.until for one in self.members if one.condition in _AWAY and one.until is not None), default=None
        )

    def coming_back(self, now: Moment, step: Span, steps: int) -> list[int]:
        """How many members that are away come back in each of the next steps."""
        counts = [0] * steps
        for one in self.members:
            if one.condition in _AWAY and one.until is not None and 0 <= one.until - now < step * steps:
                counts[(one.until - now) // step] += 1
        return counts


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    """One member with the tasks that hold it now."""

    reading: MemberReading
    rules: PoolRules
    held_by: tuple[TaskId, ...]


async def list_resource_pools(store: Store, now: Moment) -> list[ResourcePoolReading]:
    """Every resource pool with its members."""
    resources = resources_of(store)
    pools = await resources.resource_pools()
    return [_reading(ResourcePoolView(one.name, one.rules, await resources.resources(one.name)), now) for one in pools]


def neediest(pools: Iterable[ResourcePoolReading]) -> list[ResourcePoolReading]:
    """Those first of which the most members cannot be used."""
    return sorted(pools, key=lambda one: one.usable - len(one.members))


async def read_resource_pool(store: Store, name: str, now: Moment) -> ResourcePoolReading:
    """The pool of this name with its members and the queues that are bound to it."""
    queues = tuple(queue.name for queue in await store.queues() if queue.resources == name)
    pool = await find_pool(store, name)
    view = ResourcePoolView(name, pool.rules, await resources_of(store).resources(name))
    return msgspec.structs.replace(_reading(view, now, queues), sources=rule_readings(pool))


async def read_member(store: Store, pool: str, name: str, now: Moment) -> MemberPage:
    view = await find_resource_pool(store, pool)
    (member,) = find_members(view, [name])
    holders = (await store.find(by(resource=member.id, state=State.RUNNING), limit=_HOLDERS)).tasks
    return MemberPage(reading=_member(view, member, now), rules=view.rules, held_by=tuple(task.id for task in holders))


async def find_resource_pool(store: Store, name: str) -> ResourcePoolView:
    """The resource pool of this name with its members."""
    pool = await find_pool(store, name)
    return ResourcePoolView(name, pool.rules, await resources_of(store).resources(name))


def find_members(view: ResourcePoolView, names: Sequence[str] | None) -> list[Resource]:
    """The members of these names (None: all). One unknown name is an error, before anything is changed."""
    if names is None:
        return list(view.members)
    known = {member.name: member for member in view.members}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise no_such_member(view.name, unknown, known)
    return [known[name] for name in dict.fromkeys(names)]


async def change_members(
    store: Store, pool: str, members: Iterable[Resource], change: ResourceChange | None
) -> list[str]:
    """Change members, or remove them if `change` is None; the names of those that there were."""
    return await resources_of(store).change_resources(pool, [member.name for member in members], change)


async def holders_of(store: Store, members: Iterable[Resource]) -> dict[str, tuple[TaskId, ...]]:
    """The tasks that hold these members now, by the member's name; none for one that a lease outside a task holds."""
    held: dict[str, tuple[TaskId, ...]] = {}
    for member in members:
        if member.in_use:
            page = await store.find(by(resource=member.id, state=State.RUNNING), limit=_HOLDERS)
            held[member.name] = tuple(task.id for task in page.tasks)
    return held


def limits_text(limits: Limits) -> str:
    """ "60/1m, 500ms between uses, 2 at a time"."""
    parts = [f"{window.count}/{spoken(window.per)}" for window in limits.windows]
    if limits.min_delay or limits.jitter:
        least, most = limits.min_delay, limits.min_delay + limits.jitter
        gap = spoken(least) if least == most else f"{spoken(least)}–{spoken(most)}"
        parts.append(f"{gap} between uses" + (" after the end" if limits.delay_from == "end" else ""))
    parts += [f"guard {spoken(limits.guard)}"] if limits.guard else []
    parts.append("any number at a time" if limits.concurrency is None else f"{limits.concurrency} at a time")
    return ", ".join(parts)


def _reading(view: ResourcePoolView, now: Moment, queues: tuple[str, ...] = ()) -> ResourcePoolReading:
    return ResourcePoolReading(
        name=view.name,
        rules=view.rules,
        members=tuple(_member(view, member, now) for member in view.members),
        shortage=view.shortage(now),
        steady=view.supply(now).steady,
        queues=queues,
    )


def _member(view: ResourcePoolView, member: Resource, now: Moment) -> MemberReading:
    how, until = condition(member, view.rules, now)
    compared, last = member.record.compared, member.last_used_at
    guilty = suspected(compared) and at_fault(
        compared, [one.record.compared for one in view.members if one.enabled and one.name != member.name]
    )
    return MemberReading(
        member=member,
        condition=how,
        until=until,
        why=_why(member, how, guilty=guilty),
        limits=limits_of(member, view.rules),
        evidence=evidence(compared),
        at_fault=guilty,
        used_at=min(last, now) if last else None,
        open_until=last if last > now else None,
    )


def _why(member: Resource, how: Condition, *, guilty: bool) -> str | None:
    if how is Condition.DISABLED:
        return member.disabled_reason
    if guilty:
        return str(evidence(member.record.compared))
    if how in (Condition.COOLING, Condition.BLACKLISTED):
        cause = member.record.last_error or member.record.last_outcome
        return None if cause is None else one_line(str(cause), _LONGEST)
    return None
