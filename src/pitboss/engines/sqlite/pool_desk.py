"""The protocols of resource pools, leases and batches over the engine's two ways to the store."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from pitboss.engines.sqlite import batch_views, batches, leases, pools
from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.ledger import Reader
from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Lane, NewBatch
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
from pitboss.model.task import NewTask, Token

T = TypeVar("T")


class Ways:
    """Writing in the writer's transaction, and reading beside it."""

    async def _write(self, name: str, call: Callable[[Act], T], weight: int = 1) -> T:
        raise NotImplementedError

    async def _read(self, call: Callable[[Reader], T]) -> T:
        raise NotImplementedError


class PoolDesk(Ways):
    """What is scarce, and what starts and ends together."""

    async def declare_pool(self, name: str, rules: PoolRules) -> None:
        await self._write("declare_pool", lambda act: pools.declare(act, name, rules))

    async def resource_pools(self) -> list[ResourcePool]:
        return await self._read(lambda reader: pools.pools(reader.rows, reader.now))

    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        return await self._write("add_resources", lambda act: pools.add(act, pool, members), len(members))

    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        return await self._write("change_resources", lambda act: pools.change(act, pool, names, change))

    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        return await self._read(lambda reader: pools.resources(reader.rows, pool, names, reader.now))

    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        return await self._write("acquire", lambda act: leases.acquire(act, pool, want, hold, lease))

    async def release(self, lease: str, report: Report | None) -> bool:
        return await self._write("release", lambda act: leases.release(act, lease, report))

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        return await self._write("extend", lambda act: leases.extend(act, lease, hold))

    async def use(
        self, holder: Token | str, task: TaskId | None = None, *, instead: Moment | None = None
    ) -> Moment | Shortage:
        return await self._write("use", lambda act: leases.use(act, holder, task, instead))

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        return await self._write("create_batch", lambda act: batches.create(act, batch, items), len(items))

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        return await self._write("act_on_batch", lambda writing: batches.change(writing, batch, act, limit), limit)

    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        if ids is not None:
            return await self._read(lambda reader: batch_views.views(reader.rows, reader.now, ids))
        return await self._read(lambda reader: batch_views.found(reader.rows, reader.now, statuses, limit))

    async def lanes(self) -> list[Lane]:
        return await self._read(lambda reader: batch_views.lanes(reader.rows))

    async def change_lane(self, name: str, max_running: int) -> Lane:
        return await self._write("change_lane", lambda act: batches.change_lane(act, name, max_running))
