"""Measures the load of the pools that follow it, and has `model/scaling.py` say how many workers each needs."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Clock, Store
from pitboss.manager.crew import Crew
from pitboss.manager.staff import Staff
from pitboss.manager.vitals import cores, host_memory_free
from pitboss.model.batch import Batch, BatchStatus
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import PitbossError
from pitboss.model.filter import by
from pitboss.model.fleet import alive
from pitboss.model.pool import PoolSpec
from pitboss.model.queue import Queue
from pitboss.model.resource import ResourcePool
from pitboss.model.scaling import Arrivals, PoolLoad, ScalingState, decide
from pitboss.model.session import Session
from pitboss.model.snapshot import read
from pitboss.model.states import State
from pitboss.model.supply import feed, flow, with_batches

LOOK_SECONDS = 2.0


class Scaler:
    """One look at all pools that scale every two seconds. Those with a fixed size cost nothing.

    `room` says how many more tasks the workers of a pool could start at this moment.
    """

    def __init__(self, engine: Store, staff: Staff, clock: Clock, room: Callable[[str], int]) -> None:
        self._engine, self._staff, self._clock, self._room = engine, staff, clock, room
        self._optional = capabilities(engine)
        self._known: dict[str, _Known] = {}
        self.session: int | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            crews = [crew for crew in self._staff.crews.values() if crew.spec.scales]
            if crews:
                try:
                    await self.look(crews)
                except PitbossError:
                    continue  # the store is away: nobody knows the load, and the sizes stay

    async def look(self, crews: Iterable[Crew]) -> None:
        queues = await self._engine.queues()
        pools, batches = await self._resource_pools(queues), await self._batches(queues)
        started = {batch.id: batch.started_at or 0 for batch in batches}
        sessions = alive(await self._engine.sessions(), self._clock.now())
        for crew in crews:
            known = self._known.setdefault(crew.spec.name, _Known())
            now = self._clock.now()
            served = _served(queues, crew.spec)
            load = await self._load(crew, known, served, sessions, started, now)
            open_queues = [queue for queue in served if not queue.paused]
            rooms = {queue.name: _room_of(queue, pools) for queue in open_queues}
            load = with_batches(_with_resources(load, open_queues, pools), batches, rooms)
            # What an operator or the configuration has changed meanwhile is where the next decision begins.
            state = msgspec.structs.replace(known.state, size=crew.size)
            decision = decide(load, crew.spec, state, now)
            known.state = decision.state
            self._staff.scale(crew.spec.name, decision.size, decision.why)

    async def _load(
        self,
        crew: Crew,
        known: "_Known",
        queues: list[Queue],
        sessions: list[Session],
        started: dict[str, Moment],
        now: Moment,
    ) -> PoolLoad:
        spec = crew.spec
        peers = sorted(one.number for one in sessions if _runs(one, spec.name))
        open_queues = [queue for queue in queues if not queue.paused]
        pending = sum(queue.counts.get(State.PENDING, 0) for queue in open_queues)
        workers = [place.current for place in crew.places.values() if place.current is not None]
        ready = [worker for worker in workers if worker.ready.is_set()]
        running = sum(len(worker.claims) for worker in ready)
        return PoolLoad(
            pending=pending,
            oldest_wait=await self._oldest(open_queues, started, now) if pending else 0,
            arrivals=known.arrived(queues, now),
            rate=_ceiling(open_queues),
            managers=max(1, len(peers)),
            rank=peers.index(self.session) if self.session in peers else 0,
            running=running,
            ready=len(ready),
            free=self._room(spec.name),
            mean=known.mean(crew),
            cores=cores(),
            free_memory=host_memory_free(),
            worker_memory=max((worker.memory for worker in ready), default=0) or None,
        )

    async def _resource_pools(self, queues: Iterable[Queue]) -> dict[str, ResourcePool]:
        store = self._optional.resources
        if store is None or not any(queue.resources for queue in queues):
            return {}
        return {pool.name: pool for pool in await store.resource_pools()}

    async def _batches(self, queues: Iterable[Queue]) -> list[Batch]:
        """Those that run or are queued, if any has items that are not drawn."""
        store = self._optional.batches
        if store is None or not any(queue.counts.get(State.HELD) for queue in queues):
            return []
        return await store.batches(statuses=(BatchStatus.RUNNING, BatchStatus.QUEUED))

    async def _oldest(self, queues: list[Queue], started: dict[str, Moment], now: Moment) -> Span:
        """How long the oldest task waits. One of a batch did not wait for a worker before its batch was started."""
        names = [queue.name for queue in queues if queue.counts.get(State.PENDING, 0)]
        page = await self._engine.find(by(state="pending", queue=names), limit=1, oldest_first=True)
        begun = (max(task.created_at, task.run_at or 0, started.get(task.batch or "", 0)) for task in page.tasks)
        return max((now - moment for moment in begun), default=0)


class _Known:
    """What is remembered of a pool between two looks."""

    def __init__(self) -> None:
        self.state = ScalingState()
        self._arrivals = Arrivals()
        self._seen: int | None = None
        self._busy: dict[str, tuple[Span, int]] = {}
        self._mean: Span | None = None

    def arrived(self, queues: list[Queue], now: Moment) -> float:
        """Tasks per second that have become runnable. Pruning takes some away, which is no opposite of arriving."""
        waiting = (State.SCHEDULED, State.HELD)
        total = sum(n for queue in queues for state, n in queue.counts.items() if state not in waiting)
        before, self._seen = self._seen, total
        return self._arrivals.count(0 if before is None else max(0, total - before), now)

    def mean(self, crew: Crew) -> Span | None:
        """How long the tasks took that have ended since the last look; the figure from before if none has."""
        now = {worker.id: (worker.busy, worker.processed) for worker in crew.workers}
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
    """The load as resources limit it. Nobody knows the limit if a queue that has work needs none."""
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
    """How many tasks per second the rates of the queues let start; None if one that has work is without a limit."""
    busy = [queue for queue in queues if queue.counts.get(State.PENDING, 0)]
    if not busy or any(not queue.rate for queue in busy):
        return None
    return sum(min(window.count / window.per for window in queue.rate) for queue in busy) * SECOND
