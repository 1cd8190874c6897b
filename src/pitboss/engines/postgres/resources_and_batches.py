"""The protocols of resources, leases and batches. The others are in `core_protocols.py`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from pitboss.engines.postgres import batch_views, batches, further_uses, leases, resource_pools
from pitboss.engines.postgres.connections import Connections
from pitboss.engines.postgres.core_protocols import CoreProtocols
from pitboss.engines.postgres.further_uses import Answer, Asked, Busy, Removed
from pitboss.engines.postgres.grouped_calls import GroupedCalls
from pitboss.engines.postgres.rows import known_id
from pitboss.engines.postgres.script import Again, Script, Statements, current
from pitboss.engines.postgres.server_clock import ServerClock
from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import MemberRemoved, StaleLease
from pitboss.model.ids import TaskId
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
)
from pitboss.model.task import NewTask, Token

T = TypeVar("T")
_TRIES = 20
_PAUSE = 0.005
# Seconds before a use is tried again whose member is locked: a transaction lasts a few milliseconds.
_PAUSES = (0.002, 0.004, 0.008, 0.016)


class ResourcesAndBatches(CoreProtocols):
    """What tasks hold, and what they belong to."""

    def __init__(self, sql: Statements, writing: Connections, reading: Connections, clock: ServerClock) -> None:
        super().__init__(sql, writing, reading, clock)
        self._uses = GroupedCalls(self._use)

    async def declare_pool(
        self, name: str, rules: PoolRules | None, *, by: str | None = None, replace: bool = True
    ) -> Declaration | None:
        return await self._transact(
            "declare_pool",
            self._reading,
            lambda now: self._noted(resource_pools.declare(self._sql, name, rules, by, replace, now), now),
        )

    async def limit_pool(
        self, name: str, values: dict[str, KeyValue], *, by: str | None = None, reset: bool = False
    ) -> bool:
        return await self._transact(
            "limit_pool",
            self._reading,
            lambda now: self._noted(resource_pools.limit(self._sql, name, values, by, reset, now), now),
        )

    async def resource_pools(self) -> list[ResourcePool]:
        now = self._now()
        return await self._reading.call(lambda: resource_pools.listed(self._sql, now))

    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        return await self._transact(
            "add_resources",
            self._reading,
            lambda now: self._noted(resource_pools.add(self._sql, pool, members, now), now),
        )

    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        return await self._transact(
            "change_resources",
            self._reading,
            lambda now: self._noted(resource_pools.change(self._sql, pool, names, change, now), now),
        )

    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        now = self._now()
        return await self._reading.call(lambda: resource_pools.shown(self._sql, pool, names, now))

    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        for attempt in range(_TRIES):
            answer = await self._transact(
                "acquire", self._writing, lambda now: leases.acquire(self._sql, pool, want, hold, lease, now)
            )
            if not isinstance(answer, Again):
                return answer
            # The transaction that has them locked ends soon, and may leave some.
            await asyncio.sleep(_PAUSE * (attempt + 1))
        return Shortage(pool=pool, why="all busy", until=await self._moment())

    async def release(self, lease: str, report: Report | None, use_end: UseEnd | None = None) -> bool:
        return await self._transact(
            "release", self._writing, lambda now: leases.release(self._sql, lease, report, use_end, now)
        )

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        now = self._now()
        return await self._writing.call(lambda: leases.extend(self._sql, lease, hold, now))

    async def use(
        self,
        holder: Token | str,
        task: TaskId | None = None,
        *,
        instead: Moment | None = None,
        ends: UseEnd | None = None,
    ) -> Moment | Shortage:
        self._reach("use.before")
        known = task is None or known_id(task)
        answer = await self._used(Asked(holder, task, instead, ends)) if known else None
        self._reach("use.after")
        if isinstance(answer, Removed):
            raise MemberRemoved(answer.resource)
        if answer is None:
            raise StaleLease(str(holder) if task is None else f"{holder} of task {task}")
        return answer

    async def end_use(self, holder: Token | str, task: TaskId | None, end: UseEnd) -> None:
        self._reach("end_use.before")
        if task is None or known_id(task):
            await self._used(Asked(holder, task, ends=end, more=False))
        self._reach("end_use.after")

    async def _used(self, asked: Asked) -> Moment | Shortage | Removed | None:
        """In a group with others. If its member is locked, try again, and at last wait for the lock alone."""
        for pause in _PAUSES:
            answer = await self._uses.ask(asked)
            if not isinstance(answer, Busy):
                return answer
            await asyncio.sleep(pause)
        (answer,) = await self._use([asked], wait=True)
        return None if isinstance(answer, Busy) else answer

    async def _use(self, asked: Sequence[Asked], *, wait: bool = False) -> list[Answer]:
        now = self._now()
        return await self._writing.call(
            lambda: further_uses.use(self._sql, asked, now, wait=wait),
            transaction=True,
            before_commit=lambda: self._reach("use.commit"),
        )

    async def bound(self, pool: str, key: str) -> str | None:
        found = await self._read("binding_get", pool=pool, key=key)
        return str(found[0][0]) if found else None

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        return await self._transact(
            "create_batch", self._writing, lambda now: batches.create(self._sql, batch, items, now)
        )

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        return await self._transact(
            "act_on_batch",
            self._reading,
            lambda now: self._noted(batches.act_on(self._sql, batch, act, limit, now), now),
        )

    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        now = self._now()

        def script() -> Script[list[Batch]]:
            moment = yield from current(self._sql, now)
            return (yield from batch_views.shown(self._sql, ids, statuses, limit, moment))

        return await self._reading.call(script)

    async def lanes(self) -> list[Lane]:
        rows = await self._read("lane_list", name=None)
        return [
            Lane(name=name, max_running=most, running=running, queued=queued) for name, most, running, queued in rows
        ]

    async def change_lane(self, name: str, max_running: int) -> Lane:
        await self._act(lambda now: batches.change_lane(self._sql, name, max_running, now))
        ((_, most, running, queued),) = await self._read("lane_list", name=name)
        return Lane(name=name, max_running=most, running=running, queued=queued)

    async def _transact(self, verb: str, link: Connections, make: Callable[[Moment | None], Script[T]]) -> T:
        """A verb in one transaction, with the places at which tests let it fail."""
        self._reach(f"{verb}.before")
        now = self._now()
        answer = await link.call(
            lambda: make(now), transaction=True, before_commit=lambda: self._reach(f"{verb}.commit")
        )
        if not isinstance(answer, Again):
            self._reach(f"{verb}.after")
        return answer

    async def _moment(self) -> Moment:
        now = self._now()
        return await self._reading.call(lambda: current(self._sql, now))
