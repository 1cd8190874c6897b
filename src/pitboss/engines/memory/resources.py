"""Resource pools: their members, the leases on them, and how members are given back."""

from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.memory.members import PoolMembers
from pitboss.engines.memory.verbs import Verbs
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import MemberRemoved, StaleLease
from pitboss.model.ids import TaskId
from pitboss.model.outdone import SentAway
from pitboss.model.picking import added_again, changed, leased, same_member
from pitboss.model.pool_rules import declared, limited
from pitboss.model.resource import (
    Declaration,
    KeyValue,
    Leased,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    ResourcePool,
    Shortage,
    UseEnd,
    Want,
    checked_resource,
)
from pitboss.model.states import State
from pitboss.model.task import Task, Token


class ResourceVerbs(Verbs):
    """The protocols `ResourcePools`, `Resources` and `Leases`."""

    async def declare_pool(
        self, name: str, rules: PoolRules | None, *, by: str | None = None, replace: bool = True
    ) -> Declaration | None:
        self._reach("declare_pool.before")
        pool, now = self._created_pool(name), self.clock.now()
        before, pool.declared = pool.declared, declared(pool.declared, rules, by, now, replace=replace)
        pool.set_rules(now)
        self.ring(self.tables.queues_of(name))
        self.audit()
        self._reach("declare_pool.after")
        return before

    async def limit_pool(
        self, name: str, values: dict[str, KeyValue], *, by: str | None = None, reset: bool = False
    ) -> bool:
        self._reach("limit_pool.before")
        if name not in self.tables.pools:
            return False
        pool, now = self._pool(name), self.clock.now()
        pool.limited = limited(pool.limited, values, by, now, reset=reset)
        pool.set_rules(now)
        self.ring(self.tables.queues_of(name))
        self.audit()
        self._reach("limit_pool.after")
        return True

    async def resource_pools(self) -> list[ResourcePool]:
        return [self._pool(name).view() for name in sorted(self.tables.pools)]

    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        self._reach("add_resources.before")
        asked = [checked_resource(new) for new in members]
        known, now = self._created_pool(pool), self.clock.now()
        fresh = {new.name for new in asked if new.name not in known.all}
        turn = known.lowest_turn()
        for new in {new.name: new for new in asked}.values():
            if new.name in fresh:
                known.add(new, turn, now)
            else:
                known.write(added_again(known.all[new.name], new, known.rules, known.nth(new.name), now))
        self.ring(self.tables.queues_of(pool))
        self.audit()
        self._reach("add_resources.after")
        return [new.name in fresh for new in asked]

    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        self._reach("change_resources.before")
        found, now = self._named(pool, names), self.clock.now()
        for member in found:
            known = self.tables.pools[pool]
            if change is None:
                known.remove(member.name, now)
            else:
                known.write(changed(member, change, known.rules, known.nth(member.name), now))
        self.ring(self.tables.queues_of(pool))
        self.audit()
        self._reach("change_resources.after")
        return [member.name for member in found]

    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        return self._named(pool, names)

    async def bound(self, pool: str, key: str) -> str | None:
        return self._pool(pool).bound(key, self.clock.now()) if pool in self.tables.pools else None

    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        self._reach("acquire.before")
        answer = self._acquire(pool, want, hold, lease, self.clock.now())
        self._reach("acquire.after")
        return answer

    async def release(self, lease: str, report: Report | None, use_end: UseEnd | None = None) -> bool:
        self._reach("release.before")
        now = self.clock.now()
        held = self.tables.leases.get(lease)
        if held is None or not _is_held(held, now):
            return False
        self._end_lease(held, report, now, use_end)
        self._reach("release.after")
        return True

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        now = self.clock.now()
        held = self.tables.leases.get(lease)
        if held is None or not _is_held(held, now):
            return None
        self.tables.leases[lease] = msgspec.structs.replace(held, expires_at=now + hold)
        return now + hold

    async def use(
        self,
        holder: Token | str,
        task: TaskId | None = None,
        *,
        instead: Moment | None = None,
        ends: UseEnd | None = None,
    ) -> Moment | Shortage:
        self._reach("use.before")
        now = self.clock.now()
        held = self._held(holder, task, now)
        if held is None:
            raise StaleLease(str(holder) if task is None else f"{holder} of task {task}")
        member = self._leased_member(*held)
        if member is None:
            raise MemberRemoved(f"{held[0]}/{held[1]}")
        if ends is not None:
            member = self._end_use(member, ends, now)
        answer = self._pool(member.pool).use(member, instead, now)
        self._reach("use.after")
        return answer

    async def end_use(self, holder: Token | str, task: TaskId | None, end: UseEnd) -> None:
        self._reach("end_use.before")
        now = self.clock.now()
        held = self._held(holder, task, now)
        member = None if held is None else self._leased_member(*held)
        if member is not None:
            self._end_use(member, end, now)
        self._reach("end_use.after")

    def hand_back(
        self, task: Task, report: Report | None, now: Moment, use_end: UseEnd | None = None, *, completed: bool
    ) -> list[SentAway]:
        """Give back the member that an ended claim held; the members that this sends away."""
        if task.resource is None:
            return []
        pool, name = task.resource.split("/", 1)
        member = self._leased_member(pool, name, task.started_at or 0)
        if member is None:
            return []
        return self._give_back(member, report, now, use_end, task.tried, completed=completed)

    def end_old_leases(self, limit: int, now: Moment) -> int:
        """Give back the members of leases that are past their time."""
        over = [held for held in self.tables.leases.values() if not _is_held(held, now)][:limit]
        for held in over:
            self._end_lease(held, None, now)
        return len(over)

    def _acquire(self, pool: str, want: Want, hold: Span, lease: str, now: Moment) -> Leased | Shortage:
        held = self.tables.leases.get(lease)
        if held is not None and _is_held(held, now):
            return held
        if held is not None:
            self._end_lease(held, None, now)
        members = self._pool(pool)
        member = members.choose(want, (), now)
        if member is None:
            return members.shortage()
        given = members.grant(member, want, now, members.turn_floor())
        self.tables.leases[lease] = leased(given, members.rules, now, lease=lease, expires_at=now + hold)
        return self.tables.leases[lease]

    def _end_lease(self, held: Leased, report: Report | None, now: Moment, use_end: UseEnd | None = None) -> None:
        del self.tables.leases[held.lease or ""]
        member = self._leased_member(held.pool, held.name, held.leased_at)
        if member is not None:
            self._give_back(member, report, now, use_end)

    def _give_back(
        self,
        member: Resource,
        report: Report | None,
        now: Moment,
        use_end: UseEnd | None,
        tried: Sequence[str] = (),
        *,
        completed: bool = False,
    ) -> list[SentAway]:
        pool = self._pool(member.pool)
        if use_end is not None:
            member = pool.end_use(member, use_end, now)
        away = pool.hand_back(member, report, tried, now, completed=completed)
        self.ring(self.tables.queues_of(member.pool))
        return away

    def _end_use(self, member: Resource, end: UseEnd, now: Moment) -> Resource:
        after = self._pool(member.pool).end_use(member, end, now)
        if after.available_at < member.available_at:
            self.ring(self.tables.queues_of(member.pool))
        return after

    def _held(self, holder: Token | str, task: TaskId | None, now: Moment) -> tuple[str, str, Moment] | None:
        """The pool and name of what is held, and since when; None if it is not held any more."""
        return self._held_by_lease(holder, now) if isinstance(holder, str) else self._held_by_claim(holder, task, now)

    def _held_by_lease(self, lease: str, now: Moment) -> tuple[str, str, Moment] | None:
        held = self.tables.leases.get(lease)
        return (held.pool, held.name, held.leased_at) if held and _is_held(held, now) else None

    def _held_by_claim(self, token: Token, task: TaskId | None, now: Moment) -> tuple[str, str, Moment] | None:
        known = self.tables.tasks.get(task or "")
        if known is None or known.resource is None or known.state is not State.RUNNING:
            return None
        if (known.session, known.claim) != (token.session, token.claim) or not self._alive(token.session, now):
            return None
        pool, name = known.resource.split("/", 1)
        return pool, name, known.started_at or 0

    def _pool(self, name: str) -> PoolMembers:
        return self.tables.pool(name, self.clock.now())

    def _created_pool(self, name: str) -> PoolMembers:
        self.tables.pools.setdefault(name, PoolMembers(name))
        return self._pool(name)

    def _leased_member(self, pool: str, name: str, leased_at: Moment) -> Resource | None:
        """The member that was leased at that moment; None if it was removed since."""
        member = self._pool(pool).all.get(name)
        return member if member is not None and same_member(member, leased_at) else None

    def _named(self, pool: str, names: Iterable[str] | None) -> list[Resource]:
        known = self._pool(pool).all
        return [known[name] for name in sorted(known if names is None else {*names} & known.keys())]


def _is_held(held: Leased, now: Moment) -> bool:
    return held.expires_at is None or held.expires_at > now
