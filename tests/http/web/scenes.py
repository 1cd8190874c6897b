"""Whole stores to look at: a load that runs second by second, with a clock that the test moves, and its faults.

`degraded`, `healthy` and `nothing` have the data of the dashboard's three reference pictures.
"""

import time
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from pitboss.model.access import AuditEntry
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND, Moment
from pitboss.model.figures import HandlerFigures, PoolSample, Sample, bucket
from pitboss.model.filter import by
from pitboss.model.happening import Kind, happening
from pitboss.model.outcome import Completed, Failed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, PoolRules, Report, ResourceChange, ResourceOutcome
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.task import Claim, TaskError
from tests.operate.bench import Bench

_DOWN = (WorkerState.RESTARTING, WorkerState.CRASHED, WorkerState.STARTING, WorkerState.STOPPED)
FORBIDDEN = TaskError(
    category="error",
    type="HTTPStatusError",
    message="403 Forbidden for https://shop.example/p/88121",
    fingerprint="403403ab",
    retryable=False,
)
TIMEOUT = TaskError(
    category="error",
    type="ConnectTimeout",
    message="no connection to proxy within 10 s",
    fingerprint="7140ab",
    retryable=False,
)


class Stream(NamedTuple):
    """Tasks of a queue: how many come each second, how many seconds one takes, and what it needs."""

    queue: str
    handler: str
    comes: float
    takes: float
    resources: str | None = None


class Pool(NamedTuple):
    """A worker pool: its hosts with how many workers each has, and which queues it serves."""

    name: str
    hosts: dict[str, int]
    concurrency: int
    queues: tuple[str, ...]
    memory: int = 0


class Running(NamedTuple):
    pool: str
    began: Moment
    ends: Moment
    claim: Claim


class Scene:
    """`streams` of tasks, run by `pools`. `states` and `whys` are of single workers, by name."""

    def __init__(self, streams: Sequence[Stream] = (), pools: Sequence[Pool] = (), *, seed: int = 1) -> None:
        self.store = Bench()
        # The pictures should show times of today.
        self.store.time.advance_to(int(time.time()) * SECOND)
        self.streams, self.pools = {one.queue: one for one in streams}, list(pools)
        self.luck = Random(seed)
        self.sessions: dict[str, int] = {}
        self.states: dict[str, WorkerState] = {}
        self.whys: dict[str, dict[str, Any]] = {}
        self.pool_figures: dict[str, dict[str, Any]] = {}
        # Uses that end like this, before the next ones succeed.
        self.uses: list[ResourceOutcome] = []
        self.fails: dict[str, tuple[float, TaskError]] = {}
        self.running: list[Running] = []
        self.seconds = self.done = 0
        self._figures: dict[str, HandlerFigures] = {}

    @property
    def now(self) -> Moment:
        return self.store.now

    async def start(self) -> None:
        infos = [HandlerInfo(name=one.handler, queue=one.queue, resources=one.resources) for one in self._streams()]
        await self.store.register(infos)
        for host in sorted({host for pool in self.pools for host in pool.hosts}):
            about = SessionInfo(
                host=host, boot_id=host, pid=1, ttl=15 * SECOND, handlers=tuple(one.name for one in infos)
            )
            self.sessions[host] = (await self.store.open_session(about)).number
        await self.tell()

    async def stop(self) -> None:
        for number in self.sessions.values():
            await self.store.end_session(number)
        self.sessions, self.running = {}, []
        await self.store.reclaim(1000)

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            for one in self._streams():
                if n := self._poisson(one.comes):
                    await self.add(one.queue, n)
            await self._settle()
            await self._claim()
            if self.seconds % 5 == 0:
                await self.tell()
            if self.seconds % 10 == 9:
                await self._sample()
            if self.seconds % 300 == 0:
                await self.store.prune(by(state="completed"), limit=100_000)
            self.seconds += 1
            self.store.time.advance(1)

    async def add(self, queue: str, number: int, **options: Any) -> None:
        handler = self.streams[queue].handler
        await self.store.put([self.store.new(handler, queue=queue, **options) for _ in range(number)])

    async def note(self, kind: Kind, subject: str, text: str, **about: Any) -> None:
        await self.store.record_happenings([happening(self.store.new_id(), self.now, kind, subject, text, **about)])

    def audited(self, who: str, act: str, target: str, **details: Any) -> Any:
        entry = AuditEntry(
            id=self.store.new_id(), who=who, act=act, target=target, details=msgspec.json.encode(details).decode()
        )
        return self.store.audited(entry)

    def names(self, pool: Pool) -> list[tuple[str, str]]:
        """Its workers, each with its host."""
        hosts = [host for host, number in pool.hosts.items() for _ in range(number)]
        return [(host, f"{pool.name}-{place + 1}") for place, host in enumerate(hosts)]

    async def tell(self) -> None:
        """Managers tell of their workers."""
        for host, number in self.sessions.items():
            own = [pool for pool in self.pools if host in pool.hosts]
            workers = [worker for pool in own for worker in self._workers(pool, host)]
            pools = [self._pool(pool, host) for pool in own]
            told = Snapshot(pools=tuple(pools), workers=tuple(workers), version="1.14.0")
            await self.store.renew(number, msgspec.json.encode(told).decode())

    def _streams(self) -> list[Stream]:
        return list(self.streams.values())

    def _pool(self, pool: Pool, host: str) -> PoolFigures:
        figures: dict[str, Any] = {
            "name": pool.name,
            "concurrency": pool.concurrency,
            "wanted": pool.hosts[host],
            "queues": pool.queues,
            "memory": pool.memory,
        }
        return PoolFigures(**figures | self.pool_figures.get(pool.name, {}))

    def _workers(self, pool: Pool, host: str) -> list[WorkerFigures]:
        names = self.names(pool)
        up = [name for _, name in names if self._up(name)]
        tasks = [one for one in self.running if one.pool == pool.name]
        given = {name: tasks[place :: max(1, len(up))] for place, name in enumerate(up)}
        return [self._worker(pool, name, given.get(name, [])) for at, name in names if at == host]

    def _worker(self, pool: Pool, name: str, tasks: Sequence[Running]) -> WorkerFigures:
        state = self.states.get(name, WorkerState.PROCESSING if tasks else WorkerState.IDLE)
        about: dict[str, Any] = {
            "state": state,
            "running": len(tasks),
            "tasks": tuple(CurrentTask(id=one.claim.id, handler=one.claim.handler, since=one.began) for one in tasks),
            "rss": 200 << 20,
            "processed": self.done // 10,
            "started_at": self.now - 3600 * SECOND,
        }
        return WorkerFigures(name=name, pool=pool.name, **about | self.whys.get(name, {}))

    def _up(self, name: str) -> bool:
        return self.states.get(name) not in (*_DOWN, WorkerState.DRAINING)

    async def _claim(self) -> None:
        for pool in self.pools:
            session = next((self.sessions[host] for host in pool.hosts if host in self.sessions), None)
            up = sum(self._up(name) for _, name in self.names(pool))
            free = up * pool.concurrency - sum(one.pool == pool.name for one in self.running)
            if session is None or free <= 0 or self.pool_figures.get(pool.name, {}).get("paused"):
                continue
            slot = Slot(free=free, queues=pool.queues)
            for claim in (await self.store.claim(ClaimRequest(session=session, slots=(slot,)))).claims:
                stream = self.streams[claim.queue]
                takes = round(stream.takes * self.luck.uniform(0.6, 1.4) * SECOND)
                self.running.append(Running(pool.name, self.now, self.now + takes, claim))
                figures = self._measured(stream)
                figures.started += 1
                figures.wait.add(max(0, self.now - claim.created_at))

    async def _settle(self) -> None:
        over = [one for one in self.running if one.ends <= self.now]
        self.running = [one for one in self.running if one.ends > self.now]
        settled = []
        for _, began, _, claim in over:
            share, error = self.fails.get(claim.queue, (0.0, TIMEOUT))
            outcome = Failed(error) if self.luck.random() < share else Completed()
            use = self.uses.pop(0) if claim.leased is not None and self.uses else ResourceOutcome.OK
            settled.append(
                Settlement(
                    id=claim.id,
                    token=claim.token,
                    transition=decide(claim, outcome, Policy(), self.now, 0.5),
                    ran=self.now - began,
                    report=None if claim.leased is None else Report(outcome=use),
                )
            )
            self._measured(self.streams[claim.queue]).run.add(self.now - began)
        if settled:
            await self.store.settle(settled)
            self.done += len(settled)

    def _measured(self, stream: Stream) -> HandlerFigures:
        return self._figures.setdefault(stream.queue, HandlerFigures(stream.queue, stream.handler))

    async def _sample(self) -> None:
        """What the managers measured in the last ten seconds; one of them tells it all."""
        session = next(iter(self.sessions.values()), None)
        if session is not None:
            pools = {}
            for pool in self.pools:
                busy = min(len(self.names(pool)), sum(one.pool == pool.name for one in self.running))
                up = sum(self._up(name) for _, name in self.names(pool))
                pools[pool.name] = PoolSample({"processing": 10 * min(busy, up), "idle": 10 * max(0, up - busy)}, 1000)
            at = bucket(self.now - 5 * SECOND, 10 * SECOND)
            found = Sample(at=at, session=session, covered=10, handlers=list(self._figures.values()), pools=pools)
            await self.store.add_samples([found])
        self._figures = {}

    def _poisson(self, mean: float) -> int:
        whole = int(mean)
        return whole + (self.luck.random() < mean - whole)


STREAMS = (
    Stream("scrape", "fetch_page", 2.1, 8, "proxies"),
    Stream("mail", "send_mail", 0.5, 0.8),
    Stream("media", "transcode", 0.02, 88),
    Stream("default", "refresh", 0.8, 1.2),
    Stream("reports", "report", 0, 40),
)
POOLS = (
    Pool("scrapers", {"box1": 6, "box2": 6}, 4, ("scrape",)),
    Pool("default", {"box1": 2, "box2": 2, "box3": 2}, 4, ("default", "mail", "reports")),
    Pool("media", {"box3": 4}, 1, ("media",), 2 << 30),
)


async def nothing() -> Scene:
    return Scene()


async def healthy(minutes: int = 60) -> Scene:
    """Three managers, five queues that keep up, three pools of resources."""
    scene = Scene(STREAMS, POOLS)
    store = scene.store
    await store.declare_pool("proxies", PoolRules(max_failures=1, max_ejected=0.5, cooldown=3600 * SECOND))
    await scene.start()
    for pool, number in (("proxies", 40), ("accounts", 12), ("api-keys", 3)):
        if pool != "proxies":
            await store.declare_pool(pool, PoolRules())
        await store.add_resources(pool, [NewResource(name=f"{pool[0]}-{n + 1:02}") for n in range(number)])
    off = ResourceChange(enabled=False, reason="contract ended")
    await store.change_resources("proxies", ["p-39", "p-40"], off)
    await scene.note(
        Kind.RELEASE_CHANGED,
        "app shop",
        "release 1.14.0 on 3 hosts, 22 workers replaced",
        details={"release": "1.14.0"},
    )
    await scene.run(minutes * 60)
    await schedules(scene)
    return scene


async def schedules(scene: Scene) -> None:
    """They are put last: nothing fires them here."""
    for name, every in (("refresh-prices", 3600), ("hourly-stats", 7200), ("daily-report", 86_400)):
        spec = ScheduleSpec(name=name, handler="report", every=every * SECOND, queue="reports")
        await scene.store.put_schedule(spec)


async def degraded(minutes: int = 32) -> Scene:
    """Most proxies are away since some minutes, a queue is paused, and a worker exceeds its memory."""
    scene = await healthy(minutes)
    store = scene.store
    items = [store.new("fetch_page", queue="scrape") for _ in range(6000)]
    await store.create_batch(NewBatch(id=store.new_id(), name="catalogue-full", lane="scrape"), items)
    later = [store.new("fetch_page", queue="scrape") for _ in range(800)]
    await store.create_batch(NewBatch(id=store.new_id(), name="price-check night", lane="scrape"), later)
    scene.fails = {"scrape": (0.1, FORBIDDEN), "mail": (0.02, TIMEOUT)}
    scene.uses = [ResourceOutcome.RATE_LIMITED] * 24 + [ResourceOutcome.RESOURCE_ERROR] * 5
    await scene.add("media", 60)
    await scene.run(minutes * 30)
    pause = QueueChange(paused=True, by="ana", reason="provider maintenance")
    await scene.audited("ana", "queues pause", "mail", reason="provider maintenance").change_queue("mail", pause)
    await scene.note(Kind.ALERT, "queue scrape", "alert processing_delay is firing: tasks of scrape wait too long")
    await scene.run(minutes * 20)
    scene.states |= {"media-4": WorkerState.RESTARTING, "scrapers-12": WorkerState.DRAINING}
    scene.whys |= {
        "media-4": {"why": "over its memory limit", "crashes": 2, "rss": (21 << 30) // 10, "next_at": scene.now},
        "scrapers-12": {"why": "pool scaled down from 12 to 11"},
    }
    await scene.store.crash("media-4", "ended: over its memory limit")
    await scene.run(10)
    await scene.tell()
    return scene
