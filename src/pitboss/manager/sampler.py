"""Writes a sample of figures every ten seconds: what this manager's tasks, workers and, as the leader, pools do."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from pitboss.dispatch.measuring import Measurements
from pitboss.engines.capabilities import ResourceStore, capabilities
from pitboss.engines.figure_protocol import Figures
from pitboss.engines.protocol import Clock, Store
from pitboss.manager import host
from pitboss.manager.session_router import SessionRouter
from pitboss.manager.worker_pool import WorkerPool
from pitboss.manager.worker_process import WorkerProcess
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import PitbossError, StoreUnavailable
from pitboss.model.facts import AnyFact, WorkerCrashed, WorkerStarted
from pitboss.model.figures import RAW, PoolSample, ResourceSample, Sample, WorkerSample, bucket
from pitboss.model.leasing import condition
from pitboss.model.resource import Condition

# While the store is away: a quarter of an hour.
_KEPT = 90
_FINISH_SECONDS = 2.0
_SECONDS = RAW // SECOND
_MEGABYTE = 1_000_000
_USABLE = (Condition.READY, Condition.BUSY, Condition.RESTING)
# Larger pools are looked at once a minute.
_MANY_MEMBERS = 1000
_LOOK_EVERY: Span = 60 * SECOND


class Sampler:
    """One row every ten seconds. `pools` are the worker pools; `term` returns the present one."""

    def __init__(
        self,
        engine: Store,
        clock: Clock,
        pools: Callable[[], Iterable[WorkerPool]],
        router: SessionRouter,
        term: Callable[[], int | None],
    ) -> None:
        has = capabilities(engine)
        self._figures: Figures | None = has.figures
        self._members = None if has.resources is None else Members(has.resources, clock)
        self._clock, self._pools, self._router, self._term = clock, pools, router, term
        self.measured = Measurements(clock)
        self._waiting: deque[Sample] = deque(maxlen=_KEPT)
        # The last session: while the store is away, there may be no present one.
        self._number = 0
        self._last_at: Moment = 0
        self._since: Moment = clock.now()
        # By pool; and the workers that have been started before, by name.
        self._restarts: Counter[str] = Counter()
        self._crashes: Counter[str] = Counter()
        self._known: set[str] = set()
        self._done = Done()

    def noting(self, publish: Callable[[AnyFact], None]) -> Callable[[AnyFact], None]:
        """The same, and each fact is noted here too."""

        def both(fact: AnyFact) -> None:
            self.note(fact)
            publish(fact)

        return both

    def note(self, fact: AnyFact) -> None:
        """Something happened to a worker."""
        match fact:
            case WorkerCrashed(pool=pool):
                self._crashes[pool] += 1
            case WorkerStarted(pool=pool, worker=worker):
                self._restarts[pool] += worker in self._known
                self._known.add(worker)

    async def run(self) -> None:
        """Take samples at the end of each bucket until cancelled."""
        while self._figures is not None:
            await asyncio.sleep((RAW - self._clock.now() % RAW) / SECOND)
            await self.sample(self._clock.now() - RAW // 2)

    async def finish(self, *, hurry: bool) -> None:
        """The last sample, of the part of a bucket that is over. A store that does not answer is given up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if hurry else _FINISH_SECONDS):
                await self.sample(self._clock.now() - 1)

    async def sample(self, within: Moment) -> None:
        """Take a sample for the bucket of this moment, unless it has one, and write what is not written yet."""
        self._number, at = self._router.session or self._number, bucket(within, RAW)
        if self._figures is None:
            return
        if self._number and at > self._last_at:
            members = await self._of_members()
            self._waiting.append(self._take(self._number, at, members))
        await self._write(self._figures)

    async def _of_members(self) -> dict[str, ResourceSample] | None:
        """None if this manager does not lead, or cannot tell."""
        if self._members is None or self._term() is None:
            return None
        try:
            return await self._members.look()
        except PitbossError:
            return None

    def _take(self, session: int, at: Moment, members: dict[str, ResourceSample] | None) -> Sample:
        now = self._clock.now()
        seconds = min(_SECONDS, max(1, round((now - self._since) / SECOND)))
        first = min(_SECONDS - seconds, max(0, round((self._since - at) / SECOND)))
        self._last_at, self._since = at, now
        handlers, resources = self.measured.take()
        for name, one in (members or {}).items():
            resources.setdefault(name, ResourceSample()).merge(one)
        return Sample(
            at=at,
            session=session,
            covered=seconds,
            led=0 if members is None else _SECONDS,
            handlers=handlers,
            pools={pool.spec.name: self._of_pool(pool, seconds) for pool in self._pools()},
            resources=resources,
            workers=[*self._workers(seconds, now)],
            seen=[(first, first + seconds)] if first else [],
        ).bounded()

    def _workers(self, seconds: int, now: Moment) -> Iterator[WorkerSample]:
        """What each worker did since the last sample."""
        slots = [(pool.spec.name, slot) for pool in self._pools() for slot in pool.every_slot()]
        there = [(pool, worker) for pool, slot in slots for worker in slot.workers]
        for pool, worker in there:
            succeeded, failed, busy = self._done.since(worker)
            yield WorkerSample(
                host.name(),
                worker.name,
                pool,
                alive=seconds,
                succeeded=succeeded,
                failed=failed,
                busy=busy,
                memory=worker.memory * seconds // _MEGABYTE,
                last=now if succeeded or failed else 0,
            )
        self._done.keep({worker.pid for _, worker in there})

    def _of_pool(self, pool: WorkerPool, seconds: int) -> PoolSample:
        """Everything in it but the ends of workers is a figure of this moment, which stands for the whole bucket."""
        name, states, memory = pool.spec.name, Counter[str](), 0
        for slot in pool.every_slot():
            for worker in slot.workers:
                states[worker.state] += seconds
                memory += worker.memory
            if not slot.workers:
                states[slot.state] += seconds
        return PoolSample(
            workers=dict(states),
            memory=memory * seconds // _MEGABYTE,
            restarts=self._restarts.pop(name, 0),
            crashes=self._crashes.pop(name, 0),
        )

    async def _write(self, figures: Figures) -> None:
        """Samples that could not be written are kept; a repeated one changes nothing."""
        while self._waiting:
            several = list(self._waiting)
            try:
                await figures.add_samples(several)
            except StoreUnavailable:
                return
            written = {one.key for one in several}
            self._waiting = deque((one for one in self._waiting if one.key not in written), maxlen=_KEPT)


class Done:
    """What workers have done, as of the last sample."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int, Span]] = {}

    def since(self, worker: WorkerProcess) -> tuple[int, int, Span]:
        """Tasks that succeeded and failed, and the time that they took, since the last call."""
        succeeded, failed, busy = self._before.get(worker.pid, (0, 0, 0))
        self._before[worker.pid] = worker.succeeded, worker.failed, worker.busy
        return worker.succeeded - succeeded, worker.failed - failed, worker.busy - busy

    def keep(self, pids: Collection[int]) -> None:
        """Forget the others, whose pids may come again."""
        self._before = {pid: told for pid, told in self._before.items() if pid in pids}


class Members:
    """The members of all resource pools by condition. Those of large pools are read once a minute."""

    def __init__(self, resources: ResourceStore, clock: Clock) -> None:
        self._resources, self._clock = resources, clock
        self._read: dict[str, tuple[Moment, Counter[Condition]]] = {}

    async def look(self) -> dict[str, ResourceSample]:
        """Each pool, as if its members had been so for ten seconds."""
        found: dict[str, ResourceSample] = {}
        for pool in await self._resources.resource_pools():
            now = self._clock.now()
            read_at, counts = self._read.get(pool.name, (0, Counter()))
            if pool.members <= _MANY_MEMBERS or now - read_at >= _LOOK_EVERY:
                members = await self._resources.resources(pool.name)
                counts = Counter(condition(one, pool.rules, now)[0] for one in members)
                self._read[pool.name] = now, counts
            found[pool.name] = ResourceSample(
                members={str(one.value): n * _SECONDS for one, n in counts.items()},
                usable=sum(counts[one] for one in _USABLE) * _SECONDS,
            )
        return found
