"""A load on a store in memory, second by second, with a clock that the test moves: tasks come, workers run them, and a
manager tells of its workers, as managers do."""

from collections.abc import Awaitable, Callable
from math import exp
from random import Random
from typing import Any

import msgspec

from pitboss.manager.host_memory import HostMemory
from pitboss.model.duration import SECOND, Moment
from pitboss.model.figures import HandlerFigures, PoolSample, Sample, bucket
from pitboss.model.filter import by
from pitboss.model.limits import rate
from pitboss.model.outcome import Completed, Failed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.queue_forecast import QueueForecast
from pitboss.model.resource import NewResource, Report, ResourceChange, ResourceOutcome
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.states import State
from pitboss.model.task import Claim, TaskError
from pitboss.operate.status import Status, read_status
from tests.operate.bench import Bench

JOB = HandlerInfo(name="job", queue="work")
_ERROR = TaskError(category="error", type="OSError", message="no", fingerprint="abcd1234", retryable=False)
_PRUNE_EVERY = 120


class World:
    """Tasks of the queue "work" come at `comes` per second, and take `takes` seconds in one of `slots` workers."""

    def __init__(self, *, comes: float = 0.0, slots: int = 4, takes: float = 1.0, seed: int = 1) -> None:
        self.store = Bench()
        self.comes, self.slots, self.takes = comes, slots, takes
        self.queue = "work"
        self.handler = JOB
        self.fails, self.hangs = 0.0, False
        self.uses: ResourceOutcome | None = None
        self.refusals = 0
        self.luck = Random(seed)
        self.seconds = 0
        self.session: int | None = None
        self.processed = self.opened = self.crashes = 0
        self.states: dict[int, WorkerState] = {}
        self.pool: dict[str, Any] = {}
        self.usual: dict[str, int] = {}
        self.running: list[tuple[Moment, Moment, Claim]] = []
        self.coming: Callable[[int], int] = lambda _: self._poisson(self.comes)

    @property
    def now(self) -> Moment:
        return self.store.now

    async def start(self) -> None:
        """A manager comes."""
        await self.store.register([self.handler])
        info = SessionInfo(host="box1", boot_id=f"b{self.seconds}", pid=1, ttl=15 * SECOND, handlers=("job",))
        self.session = (await self.store.open_session(info)).number
        self.processed = 0
        memory = HostMemory(None, list)
        await memory.recall(self.store, self.now)
        self.usual = memory.usual
        await self._tell()

    async def stop(self) -> None:
        """It ends, and gives its tasks back."""
        assert self.session is not None
        await self.store.end_session(self.session)
        self.session, self.running = None, []
        await self.store.reclaim(1000)

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.second()

    async def second(self) -> None:
        if n := self.coming(self.seconds):
            await self.add(n)
        if self.session is not None:
            await self._end_tasks()
            await self._begin_tasks()
            if self.seconds % 5 == 0:
                await self._tell()
        if self.seconds % _PRUNE_EVERY == 0:
            await self.store.prune(by(state="completed"), limit=100_000)
        self.seconds += 1
        self.store.time.advance(1)

    async def add(self, number: int, **options: Any) -> None:
        tasks = [self.store.new("job", **{"queue": self.queue} | options) for _ in range(number)]
        await self.store.put(tasks)

    async def until_clear(self, most: int = 20_000) -> int:
        """How many seconds pass until nothing waits."""
        for passed in range(most):
            if not await self.waiting():
                return passed
            await self.second()
        raise AssertionError("it does not clear")

    async def waiting(self) -> int:
        queues = {one.name: one.counts for one in await self.store.queues()}
        return queues.get(self.queue, {}).get(State.PENDING, 0)

    async def status(self) -> Status:
        return await read_status(self.store, self.now)

    async def forecast(self) -> QueueForecast:
        return (await self.status()).forecasts[self.queue]

    async def sample(self, *, crashes: int = 0) -> None:
        """What the manager measured in the last ten seconds."""
        assert self.session is not None
        figures = HandlerFigures(self.queue, "job", self.processed)
        figures.run.add(round(self.takes * SECOND))
        pools = {"default": PoolSample({"processing": 10 * self.slots}, 100 * self.slots, 0, crashes)}
        at = bucket(self.now - 5 * SECOND, 10 * SECOND)
        await self.store.add_samples([Sample(at=at, session=self.session, covered=10, handlers=[figures], pools=pools)])

    async def _begin_tasks(self) -> None:
        free = self._ready() - len(self.running)
        if free <= 0 or self.pool.get("paused") or self.session is None:
            return
        found = await self.store.claim(
            ClaimRequest(session=self.session, slots=(Slot(free=free, queues=self.pool.get("queues")),))
        )
        for claim in found.claims:
            takes = 1e9 if self.hangs else self.takes * self.luck.uniform(0.5, 1.5)
            self.running.append((self.now, self.now + round(takes * SECOND), claim))

    async def _end_tasks(self) -> None:
        over = [(began, claim) for began, ends, claim in self.running if ends <= self.now]
        self.running = [one for one in self.running if one[1] > self.now]
        settled = []
        for began, claim in over:
            outcome = Failed(_ERROR) if self.luck.random() < self.fails else Completed()
            report = self._report(claim)
            settled.append(
                Settlement(
                    id=claim.id,
                    token=claim.token,
                    transition=decide(claim, outcome, Policy(), self.now, 0.5),
                    ran=self.now - began,
                    report=report,
                )
            )
        if settled:
            await self.store.settle(settled)
            self.processed += len(settled)

    def _report(self, claim: Claim) -> Report | None:
        """How the use went: as always, or refused, as often as it shall be."""
        if self.uses is None or claim.leased is None:
            return None
        refused = self.refusals > 0
        self.refusals -= refused
        return Report(outcome=ResourceOutcome.RATE_LIMITED if refused else self.uses)

    def _ready(self) -> int:
        gone = sum(state not in (WorkerState.IDLE, WorkerState.PROCESSING) for state in self.states.values())
        return max(0, self.slots - gone)

    async def _tell(self) -> None:
        if self.session is None:
            return
        workers = tuple(self._worker(number) for number in range(self.slots))
        figures: dict[str, Any] = {"name": "default", "concurrency": 1, "wanted": self.slots}
        pool = PoolFigures(**figures | self.pool)
        told = Snapshot(pools=(pool,), workers=workers, usual=self.usual)
        await self.store.renew(self.session, msgspec.json.encode(told).decode())

    def _worker(self, number: int) -> WorkerFigures:
        busy = number < len(self.running)
        state = self.states.get(number, WorkerState.PROCESSING if busy else WorkerState.IDLE)
        down = state in (WorkerState.RESTARTING, WorkerState.CRASHED)
        runs = [self.running[number]] if busy and not down else []
        return WorkerFigures(
            name=f"default-{number + 1}",
            state=state,
            running=len(runs),
            tasks=tuple(CurrentTask(id=claim.id, handler=claim.handler, since=began) for began, _, claim in runs),
            processed=self.processed // self.slots,
            mean=round(self.takes * SECOND) if self.processed else 0,
            crashes=self.crashes if down else 0,
            why="was killed by SIGKILL" if down else "",
            next_at=self.now + 8 * SECOND if state is WorkerState.RESTARTING else 0,
        )

    def _poisson(self, mean: float) -> int:
        n, p, least = 0, 1.0, exp(-mean)
        while (p := p * self.luck.random()) > least:
            n += 1
        return n


async def quiet(world: World) -> None:
    world.comes = 0.05


async def busy(world: World) -> None:
    world.comes, world.slots = 3.0, 6


async def bursts(world: World) -> None:
    world.slots, world.coming = 6, lambda second: 200 if second % 300 == 0 else 0


async def limited(world: World) -> None:
    world.comes = 0.3
    await world.store.change_queue("work", QueueChange(rate=rate("30/min")))


async def disabled_members(world: World) -> None:
    world.handler = HandlerInfo(name="job", queue="work", resources="proxies")
    await world.store.register([world.handler])
    await world.store.add_resources("proxies", [NewResource(name=f"p{n}") for n in range(5)])
    await world.store.change_resources("proxies", ["p1"], ResourceChange(enabled=False))
    world.comes, world.uses = 1.0, ResourceOutcome.OK


HEALTHY: tuple[Callable[[World], Awaitable[None]], ...] = (quiet, busy, bursts, limited, disabled_members)
