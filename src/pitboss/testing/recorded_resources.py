"""Pools, members and leases, written down."""

from collections.abc import Sequence

from msgspec.structs import replace

from pitboss.model.duration import Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.resource import (
    Leased,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    ResourcePool,
    Shortage,
    Want,
)
from pitboss.model.task import Token
from pitboss.testing import history as told
from pitboss.testing.recorder import Recorder


class RecordedResources(Recorder):
    """The protocols `Resources` and `Leases`."""

    async def declare_pool(self, name: str, rules: PoolRules) -> None:
        act = told.DeclarePool(name=name, rules=rules)
        await self._call(act, lambda one: self.whole.declare_pool(name, one), rules, lambda _: act)

    async def resource_pools(self) -> list[ResourcePool]:
        return await self.whole.resource_pools()

    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        act = told.AddResources(pool=pool, members=tuple(members))
        return await self._call(act, lambda some: self.whole.add_resources(pool, some), members, lambda _: act)

    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        act = told.ChangeResources(pool=pool, names=None if names is None else tuple(names), change=change)
        return await self._call(act, lambda one: self.whole.change_resources(pool, names, one), change, lambda _: act)

    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        return await self.whole.resources(pool, names)

    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        act = told.Acquire(pool=pool, want=want, hold=hold, lease=lease)
        return await self._call(
            act,
            lambda one: self.whole.acquire(pool, one, hold, lease=lease),
            want,
            lambda got: replace(act, leased=got) if isinstance(got, Leased) else replace(act, shortage=got),
        )

    async def release(self, lease: str, report: Report | None) -> bool:
        act = told.Release(lease=lease, report=report)
        return await self._call(
            act, lambda one: self.whole.release(lease, one), report, lambda done: replace(act, released=done)
        )

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        act = told.Extend(lease=lease, hold=hold)
        return await self._call(
            act, lambda one: self.whole.extend(lease, one), hold, lambda until: replace(act, until=until)
        )

    async def use(
        self, holder: Token | str, task: TaskId | None = None, *, instead: Moment | None = None
    ) -> Moment | Shortage:
        act = told.Use(holder=holder, task=task, instead=instead)
        return await self._call(
            act,
            lambda one: self.whole.use(one, task, instead=instead),
            holder,
            lambda used: act if isinstance(used, Shortage) else replace(act, used=used),
        )
