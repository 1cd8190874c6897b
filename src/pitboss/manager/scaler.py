"""Measures the load of the pools that scale, and gives each the size that `model/scaling.py` computes."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Clock, Store
from pitboss.manager import host
from pitboss.manager.host_memory import free_memory
from pitboss.manager.pool_set import PoolSet
from pitboss.manager.worker_pool import WorkerPool
from pitboss.model.batch import Batch, BatchStatus
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import PitbossError
from pitboss.model.filter import by
from pitboss.model.fleet import alive
from pitboss.model.pool import PoolSpec
from pitboss.model.queue import Queue, remote_queues
from pitboss.model.resource import ResourcePool
from pitboss.model.scaling import Arrivals, PoolLoad, ScalingState, decide
from pitboss.model.session import ClaimRequest, Session, Slot
from pitboss.model.snapshot import read
from pitboss.model.states import State
from pitboss.model.supply import feed, flow, with_batches

LOOK_SECONDS = 2.0
_RING_SECONDS = 0.1


class Scaler:
    """Looks at all pools that scale every two seconds, and at those without workers also when the store rings. Pools
    with a fixed size cost nothing.

    `room` says how many more tasks the workers of a pool could start now.
    """

    def __init__(self, engine: Store, pool_set: PoolSet, clock: Clock, room: Callable[[str], int]) -> None:
        self._engine, self._pool_set, self._clock, self._room = engine, pool_set, clock, room
        self._optional = capabilities(engine)
        self._histories: dict[str, _History] = {}
        self._bell = asyncio.Event()
        self.session: int | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        pause, all_at = LOOK_SECONDS, loop.time() + LOOK_SECONDS
        while True:
            await self._rung_within(min(pause, max(0.0, all_at - loop.time())))
            scaling = [pool for pool in self._pool_set.pools.values() if pool.spec.scales]
            empty = [pool for pool in scaling if not pool.size]
            everything, pause = loop.time() >= all_at, LOOK_SECONDS
            if everything:
                all_at = loop.time() + LOOK_SECONDS
            try:
                if empty:
                    pause = await self._until_due(empty)
                if found := scaling if everything else empty:
                    await self.look(found)
            except PitbossError:
                continue  # the store is down and the load unknown: keep the sizes

    def wake(self) -> None:
        """The store rang: a task may have come for a pool without workers, for which no claim is made."""
        self._bell.set()

    async def _rung_within(self, seconds: float) -> None:
        """Wait this long, or until the store rings and a pool has no worker. Rings in quick succession count as one."""
        pause = min(seconds, _RING_SECONDS)
        await asyncio.sleep(pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds - pause):
                await self._bell.wait()
                while not any(pool.spec.scales and not pool.size for pool in self._pool_set.pools.values()):
                    self._bell.clear()
                    await self._bell.wait()
                self._bell.clear()

    async def _until_due(self, empty: Iterable[WorkerPool]) -> float:
        """Make the due tasks of these pools pending, as the claims of workers would; in how many seconds to look again.

        A claim without room takes nothing.
        """
        if self.session is None:
            return LOOK_SECONDS
        slots = tuple(Slot(free=0, pool=pool.spec.name, queues=pool.spec.queues) for pool in empty)
        due = (await self._engine.claim(ClaimRequest(session=self.session, slots=slots))).next_due
        return LOOK_SECONDS if due is None else max(_RING_SECONDS, (due - self._clock.now()) / SECOND)

    async def look(self, scaling: Iterable[WorkerPool]) -> None:
        # No worker of a pool runs the tasks of remote workers.
        remote = remote_queues(await self._engine.handlers())
        queues = [queue for queue in await self._engine.queues() if queue.name not in remote]
        resource_pools, batches = await self._resource_pools(queues), await self._batches(queues)
        started = {batch.id: batch.started_at or 0 for batch in batches}
        sessions = alive(await self._engine.sessions(), self._clock.now())
        for pool in scaling:
            history = self._histories.setdefault(pool.spec.name, _History())
            now = self._clock.now()
            served = _served(queues, pool.spec)
            load = await self._load(pool, history, served, sessions, started, now)
            open_queues = [queue for queue in served if not queue.paused]
            rooms = {queue.name: _room_of(queue, resource_pools) for queue in open_queues}
            load = with_batches(_with_resources(load, open_queues, resource_pools), batches, rooms)
            # Start from the present size: an operator or the configuration may have changed it.
            state = msgspec.structs.replace(history.state, size=pool.size)
            decision = decide(load, pool.spec, state, now)
            history.state = decision.state
            self._pool_set.scale(pool.spec.name, decision.size, decision.why)

    async def _load(
        self,
        pool: WorkerPool,
        history: "_History",
        queues: list[Queue],
        sessions: list[Session],
        started: dict[str, Moment],
        now: Moment,
    ) -> PoolLoad:
        spec = pool.spec
        peers = sorted(one.number for one in sessions if _runs(one, spec.name))
        open_queues = [queue for queue in queues if not queue.paused]
        pending = sum(queue.counts.get(State.PENDING, 0) for queue in open_queues)
        workers = [slot.current for slot in pool.slots.values() if slot.current is not None]
        ready = [worker for worker in workers if worker.ready.is_set()]
        running = sum(len(worker.claims) for worker in ready)
        return PoolLoad(
            pending=pending,
            oldest_wait=await self._oldest(open_queues, started, now) if pending else 0,
            arrivals=history.arrived(queues, now),
            rate=_ceiling(open_queues),
            managers=max(1, len(peers)),
            rank=peers.index(self.session) if self.session in peers else 0,
            running=running,
            ready=len(ready),
            free=self._room(spec.name),
            mean=history.mean(pool),
            cores=host.cores(),
            free_memory=free_memory(),
            worker_memory=max((worker.memory for worker in ready), default=0) or None,
        )

    async def _resource_pools(self, queues: Iterable[Queue]) -> dict[str, ResourcePool]:
        store = self._optional.resources
        if store is None or not any(queue.resources for queue in queues):
            return {}
        return {pool.name: pool for pool in await store.resource_pools()}

    async def _batches(self, queues: Iterable[Queue]) -> list[Batch]:
        """The running and queued batches, if any of them has items left to draw."""
        store = self._optional.batches
        if store is None or not any(queue.counts.get(State.HELD) for queue in queues):
            return []
        return await store.batches(statuses=(BatchStatus.RUNNING, BatchStatus.QUEUED))

    async def _oldest(self, queues: list[Queue], started: dict[str, Moment], now: Moment) -> Span:
        """How long the oldest task has waited. For an item of a batch that counts from the start of the batch."""
        names = [queue.name for queue in queues if queue.counts.get(State.PENDING, 0)]
        page = await self._engine.find(by(state="pending", queue=names), limit=1, oldest_first=True)
        begun = (max(task.created_at, task.run_at or 0, started.get(task.batch or "", 0)) for task in page.tasks)
        return max((now - moment for moment in begun), default=0)


class _History:
    """What the scaler remembers about a pool between two looks."""

    def __init__(self) -> None:
        self.state = ScalingState()
        self._arrivals = Arrivals()
        self._seen: int | None = None
        self._busy: dict[str, tuple[Span, int]] = {}
        self._mean: Span | None = None

    def arrived(self, queues: list[Queue], now: Moment) -> float:
        """Tasks per second that have become runnable. A total that shrinks was pruned and counts as no arrival."""
        waiting = (State.SCHEDULED, State.HELD)
        total = sum(n for queue in queues for state, n in queue.counts.items() if state not in waiting)
        before, self._seen = self._seen, total
        return self._arrivals.count(0 if before is None else max(0, total - before), now)

    def mean(self, pool: WorkerPool) -> Span | None:
        """The mean run time of the tasks that ended since the last look; the previous mean if none has."""
        now = {worker.id: (worker.busy, worker.processed) for worker in pool.workers}
        busy = sum(one[0] - self._busy.get(name, (0, 0))[0] for name, one in now.items())
        ended = sum(one[1] - self._busy.get(name, (0, 0))[1] for name, one in now.items())
        self._busy = now
        if ended:
            fresh = busy // ended
            self._mean = fresh if self._mean is None else (self._mean + fresh) // 2
        return self._mean


def _served(queues: Iterable[Queue], spec: PoolSpec) -> list[Queue]:
    return [queue for queue in queues if spec.queues is None or queue.name in spec.queues]


def _runs(session: Session, pool: str) -> bool:
    told = read(session.snapshot)
    return told is not None and any(one.name == pool for one in told.pools)


def _room_of(queue: Queue, pools: dict[str, ResourcePool]) -> int | None:
    pool = pools.get(queue.resources or "")
    return None if pool is None else feed(pool)


def _with_resources(load: PoolLoad, queues: list[Queue], pools: dict[str, ResourcePool]) -> PoolLoad:
    """The load as resources limit it. There is no limit if a queue with work needs no resource."""
    busy = [queue for queue in queues if queue.counts.get(State.PENDING, 0) or queue.counts.get(State.RUNNING, 0)]
    names = {queue.resources for queue in busy}
    asked = [pools[name] for name in names if name in pools]
    if not asked or len(asked) < len(names):
        return load
    feeds, rates = [feed(pool) for pool in asked], [flow(pool) for pool in asked]
    most = None if None in feeds else sum(one or 0 for one in feeds)
    rate = load.rate
    if None not in rates:
        total = sum(one or 0.0 for one in rates)
        rate = total if rate is None else min(rate, total)
    return msgspec.structs.replace(load, feed=most, rate=rate)


def _ceiling(queues: list[Queue]) -> float | None:
    """How many tasks per second the rates of the queues allow; None if a queue with work has no rate."""
    busy = [queue for queue in queues if queue.counts.get(State.PENDING, 0)]
    if not busy or any(not queue.rate for queue in busy):
        return None
    return sum(min(window.count / window.per for window in queue.rate) for queue in busy) * SECOND
