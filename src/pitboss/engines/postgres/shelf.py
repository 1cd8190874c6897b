"""The protocols of scarce things and of batches: resources, leases, batches. Plain tasks stand in `desk.py`."""

import asyncio
from collections.abc import Sequence

from pitboss.engines.postgres import batches, leases, pools, views
from pitboss.engines.postgres.control import current
from pitboss.engines.postgres.desk import Desk
from pitboss.engines.postgres.leases import Contended
from pitboss.engines.postgres.script import Script
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

_TRIES = 20
_PAUSE = 0.005


class Shelf(Desk):
    """What tasks hold, and what they belong to."""

    async def declare_pool(self, name: str, rules: PoolRules) -> None:
        now = self._now()
        await self._reading.call(lambda: pools.declare(self._say, name, rules, now), transaction=True)

    async def resource_pools(self) -> list[ResourcePool]:
        now = self._now()
        return await self._reading.call(lambda: pools.listed(self._say, now))

    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        now = self._now()
        return await self._reading.call(lambda: pools.add(self._say, pool, members, now), transaction=True)

    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        now = self._now()
        return await self._reading.call(lambda: pools.change(self._say, pool, names, change, now), transaction=True)

    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        now = self._now()
        return await self._reading.call(lambda: pools.shown(self._say, pool, names, now))

    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        now = self._now()
        for attempt in range(_TRIES):
            try:
                return await self._writing.call(
                    lambda: leases.acquire(self._say, pool, want, hold, lease, now), transaction=True
                )
            except Contended:
                # Whoever has them locked is done in a moment, with all of them or with some.
                await asyncio.sleep(_PAUSE * (attempt + 1))
        return Shortage(pool=pool, why="all busy", until=await self._moment())

    async def release(self, lease: str, report: Report | None) -> bool:
        now = self._now()
        return await self._writing.call(lambda: leases.release(self._say, lease, report, now), transaction=True)

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        now = self._now()
        return await self._writing.call(lambda: leases.extend(self._say, lease, hold, now))

    async def use(self, holder: Token | str, task: TaskId | None = None) -> Moment | Shortage:
        now = self._now()
        return await self._writing.call(lambda: leases.use(self._say, holder, task, now), transaction=True)

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        self._reach("create_batch.before")
        now = self._now()
        made = await self._writing.call(
            lambda: batches.create(self._say, batch, items, now),
            transaction=True,
            before_commit=lambda: self._reach("create_batch.commit"),
        )
        self._reach("create_batch.after")
        return made

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        self._reach("act_on_batch.before")
        now = self._now()
        changed = await self._reading.call(
            lambda: batches.act_on(self._say, batch, act, limit, now),
            transaction=True,
            before_commit=lambda: self._reach("act_on_batch.commit"),
        )
        self._reach("act_on_batch.after")
        return changed

    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        now = self._now()

        def script() -> Script[list[Batch]]:
            moment = yield from current(self._say, now)
            return (yield from views.shown(self._say, ids, statuses, limit, moment))

        return await self._reading.call(script)

    async def lanes(self) -> list[Lane]:
        rows = await self._read("lanes", name=None)
        return [
            Lane(name=name, max_running=most, running=running, queued=queued) for name, most, running, queued in rows
        ]

    async def change_lane(self, name: str, max_running: int) -> Lane:
        now = self._now()
        await self._reading.call(lambda: batches.change_lane(self._say, name, max_running, now), transaction=True)
        ((_, most, running, queued),) = await self._read("lanes", name=name)
        return Lane(name=name, max_running=most, running=running, queued=queued)

    async def _moment(self) -> Moment:
        now = self._now()
        return await self._reading.call(lambda: current(self._say, now))
