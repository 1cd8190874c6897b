"""Resources of the client's store inside a worker, by asking the manager."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

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

T = TypeVar("T")


class Asking(Protocol):
    """The way to the manager."""

    async def ask_manager(self, verb: str, arguments: tuple[Any, ...], kind: type[T]) -> T: ...


class ManagedResources:
    """What the client needs of a store with resources."""

    async def declare_pool(self: Asking, name: str, rules: PoolRules) -> None:
        """Nothing to do: the manager has declared the pools of the app, with what its settings say of them."""

    async def resource_pools(self: Asking) -> list[ResourcePool]:
        return await self.ask_manager("resource_pools", (), list[ResourcePool])

    async def add_resources(self: Asking, pool: str, members: Sequence[NewResource]) -> list[bool]:
        return await self.ask_manager("add_resources", (pool, list(members)), list[bool])

    async def change_resources(
        self: Asking, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        chosen = None if names is None else list(names)
        return await self.ask_manager("change_resources", (pool, chosen, change), list[str])

    async def resources(self: Asking, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        chosen = None if names is None else list(names)
        return await self.ask_manager("resources", (pool, chosen), list[Resource])

    async def acquire(self: Asking, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        kind: Any = tuple[Leased | None, Shortage | None]
        leased, shortage = await self.ask_manager("acquire", (pool, want, hold, lease), kind)
        found: Leased | Shortage = shortage if leased is None else leased
        return found

    async def release(self: Asking, lease: str, report: Report | None) -> bool:
        return await self.ask_manager("release", (lease, report), bool)

    async def extend(self: Asking, lease: str, hold: Span) -> Moment | None:
        kind: Any = Moment | None
        until: Moment | None = await self.ask_manager("extend", (lease, hold), kind)
        return until

    async def use(
        self: Asking, holder: Token | str, task: TaskId | None = None, *, instead: Moment | None = None
    ) -> Moment | Shortage:
        kind: Any = Moment | Shortage
        answer: Moment | Shortage = await self.ask_manager("use", (holder, task, instead), kind)
        return answer
