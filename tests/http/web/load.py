"""A load that runs second by second on a store in memory, with a clock that the test moves."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from pitboss.model.access import AuditEntry
from pitboss.model.duration import SECOND, Moment
from pitboss.model.figures import HandlerFigures, PoolSample, ResourceSample, Sample, WorkerSample, bucket
from pitboss.model.filter import by
from pitboss.model.happening import Kind, happening
from pitboss.model.outcome import Completed, Crashed, Failed, Outcome, Rotated, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Report, ResourceOutcome
from pitboss.model.schedule import firing
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.task import Claim, TaskError
from pitboss.operate.resources import list_resource_pools
from tests.operate.bench import Bench

# Monday, 16 November 2026, 09:10 in Berlin: pictures of a scene are the same ones each time.
BEGIN: Moment = 1_794_816_600 * SECOND
_DOWN = (WorkerState.RESTARTING, WorkerState.CRASHED, WorkerState.STARTING, WorkerState.STOPPED)
_MEMORY = 200 << 20
Params = Callable[[Random], dict[str, Any]]


class Stream(NamedTuple):
    """Tasks of a queue: how many come each second, how many seconds one takes, and what it needs. `kept`: the completed
    ones stay."""

    queue: str
    handler: str
    comes: float
    takes: float
    resources: str | None = None
    params: Params | None = None
    priority: int = 0
    kept: bool = False


class Pool(NamedTuple):
    """A worker pool: its hosts with how many workers each has, and which queues it serves."""

    name: str
    hosts: dict[str, int]
    concurrency: int
    queues: tuple[str, ...]
    memory: int = 0
    rss: int = _MEMORY


class Running(NamedTuple):
    pool: str
    worker: str
    began: Moment
    ends: Moment
    claim: Claim


class Turn(NamedTuple):
    """How a run of a certain task goes."""

    takes: float
    outcome: Outcome
    report: Report | None = None


class Scene:
    """`streams` of tasks, run by `pools`. `states` and `whys` are of single workers, by name."""

    def __init__(
        self, streams: Sequence[Stream] = (), pools: Sequence[Pool] = (), *, seed: int = 1, begin: Moment = BEGIN
    ) -> None:
        self.store = Bench(begin)
        self.streams, self.pools = {one.queue: one for one in streams}, list(pools)
        self.luck, self._dice = Random(seed), Random(seed)
        self.sessions: dict[str, int] = {}
        self.states: dict[str, WorkerState] = {}
        self.whys: dict[str, dict[str, Any]] = {}
        self.pool_figures: dict[str, dict[str, Any]] = {}
        # What every manager says of itself.
        self.about: dict[str, Any] = {"version": "1.14.0"}
        # Uses that end like this, before the next ones succeed; and those of single members, by name.
        self.uses: list[ResourceOutcome] = []
        self.reports: dict[str, list[Report]] = {}
        # Where members are used, each with its weight.
        self.sites: dict[str, int] = {}
        # The share of runs that fail, with one of these errors. A task that failed once mostly fails again.
        self.fails: dict[str, tuple[Any, ...]] = {}
        self.turns: dict[str, list[Turn]] = {}
        # Handlers beside those of the streams; and how many starts in a second a queue and handler get.
        self.extra: dict[str, HandlerInfo] = {}
        self.most: dict[tuple[str, str], float] = {}
        self.policy = Policy()
        # Whether tasks come, and whether schedules fire.
        self.comes, self.fires = True, False
        self._acts: dict[Moment, list[Callable[[], Awaitable[object]]]] = {}
        self.places: dict[str, str] = {}
        self.running: list[Running] = []
        self.seconds = self.done = 0
        self._figures: dict[str, HandlerFigures] = {}
        self._used: dict[str, ResourceSample] = {}
        self._did: dict[str, WorkerSample] = {}
        self._total: dict[str, WorkerSample] = {}

    @property
    def now(self) -> Moment:
        return self.store.now

    def at(self, moment: Moment, act: Callable[[], Awaitable[object]]) -> None:
        """It is done in the second that begins then."""
        self._acts.setdefault(moment, []).append(act)

    async def register(self) -> None:
        infos = [HandlerInfo(name=one.handler, queue=one.queue, resources=one.resources) for one in self._streams()]
        await self.store.register([*infos, *self.extra.values()])

    async def start(self, *, ttl: int = 15) -> None:
        await self.register()
        names = tuple(one.name for one in await self.store.handlers())
        for host in sorted({host for pool in self.pools for host in pool.hosts}):
            about = SessionInfo(host=host, boot_id=host, pid=1, ttl=ttl * SECOND, handlers=names)
            self.sessions[host] = (await self.store.open_session(about)).number
        await self.tell()

    async def stop(self) -> None:
        for number in self.sessions.values():
            await self.store.end_session(number)
        self.sessions, self.running = {}, []
        await self.store.reclaim(1000)

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            for act in self._acts.pop(self.now, ()):
                await act()
            for one in self._streams():
                if n := self._poisson(one.comes if self.comes else 0):
                    await self.add(one.queue, n)
            await self._settle()
            await self._claim()
            if self.seconds % 5 == 0:
                await self.tell()
            if self.seconds % 10 == 9:
                await self._sample()
            if self.seconds % 300 == 0:
                await self._prune()
            if self.fires:
                await self._fire()
            self.seconds += 1
            self.store.time.advance(1)

    async def run_until(self, at: Moment) -> None:
        await self.run((at - self.now) // SECOND)

    async def add(self, queue: str, number: int, **options: Any) -> None:
        stream = self.streams[queue]
        tasks = []
        for _ in range(number):
            params = {} if stream.params is None else {"params": self._params(stream.params)}
            about = {"priority": stream.priority} | params | options
            tasks.append(self.store.new(stream.handler, queue=queue, **about))
        await self.store.put(tasks)

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
            told = Snapshot(pools=tuple(pools), workers=tuple(workers), **self.about)
            await self.store.renew(number, msgspec.json.encode(told).decode())

    async def rush(self, queue: str, handler: str, number: int) -> None:
        """This number of tasks ends at once."""
        session = next(iter(self.sessions.values()))
        slot = Slot(free=number, queues=(queue,), handlers=(handler,))
        for claim in (await self.store.claim(ClaimRequest(session=session, slots=(slot,)))).claims:
            transition = decide(claim, Completed(), self.policy, self.now, 0.5)
            await self.store.settle([Settlement(id=claim.id, token=claim.token, transition=transition)])

    async def lose(self, worker: str) -> None:
        """Its process died with what it ran."""
        gone = [one for one in self.running if one.worker == worker]
        self.running = [one for one in self.running if one.worker != worker]
        ended = [self._settlement(one, Crashed(alone=len(gone) == 1), None) for one in gone]
        await self.store.settle(ended)

    def _streams(self) -> list[Stream]:
        return list(self.streams.values())

    def _params(self, make: Params) -> str:
        return msgspec.json.encode(make(self._dice)).decode()

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
        tasks: dict[str, list[Running]] = {}
        for one in self.running:
            tasks.setdefault(one.worker, []).append(one)
        return [self._worker(pool, name, tasks.get(name, [])) for at, name in self.names(pool) if at == host]

    def _worker(self, pool: Pool, name: str, tasks: Sequence[Running]) -> WorkerFigures:
        state = self.states.get(name, WorkerState.PROCESSING if tasks else WorkerState.IDLE)
        did = self._total.get(name) or WorkerSample("", name)
        ended = did.succeeded + did.failed
        place = int(name.rpartition("-")[2])
        about: dict[str, Any] = {
            "state": state,
            "running": len(tasks),
            "tasks": tuple(CurrentTask(id=one.claim.id, handler=one.claim.handler, since=one.began) for one in tasks),
            "rss": pool.rss + (place * 7 % 5 << 22) + len(tasks) * (pool.rss >> 4),
            "processed": ended,
            "succeeded": did.succeeded,
            "failed": did.failed,
            "mean": did.busy // ended if ended else 0,
            "started_at": self.now - 3600 * SECOND,
            "active_at": did.last,
            "pid": 4200 + place,
            "cpu": 0.2 * len(tasks),
        }
        return WorkerFigures(name=name, pool=pool.name, **about | self.whys.get(name, {}))

    def _up(self, name: str) -> bool:
        return self.states.get(name) not in (*_DOWN, WorkerState.DRAINING)

    async def _claim(self) -> None:
        for pool in self.pools:
            session = next((self.sessions[host] for host in pool.hosts if host in self.sessions), None)
            loads = Counter(one.worker for one in self.running if one.pool == pool.name)
            free = [name for _, name in self.names(pool) if self._up(name) for _ in range(pool.concurrency)]
            for name, n in loads.items():
                free = [one for one in free if one != name] + [name] * (free.count(name) - n)
            if session is None or not free or self.pool_figures.get(pool.name, {}).get("paused"):
                continue
            claimed = await self.store.claim(ClaimRequest(session=session, slots=self._slots(pool, len(free))))
            for short in claimed.shortages:
                self._use(short.pool).limits_met += 1
            for claim in claimed.claims:
                worker = free.pop(self._dice.randrange(len(free)))
                self.running.append(self._began(pool, worker, claim))

    def _slots(self, pool: Pool, free: int) -> tuple[Slot, ...]:
        """The work of its queues, divided as `most` says."""
        slots, known = [], {one.handler for one in self._streams()} | set(self.extra)
        for (queue, handler), most in self.most.items():
            if queue in pool.queues:
                n = min(free, self._poisson(most))
                free -= n
                slots.append(Slot(free=n, queues=(queue,), handlers=(handler,)))
        others = tuple(sorted(known - {handler for _, handler in self.most})) if slots else None
        return (*slots, Slot(free=free, queues=pool.queues, handlers=others))

    def _began(self, pool: Pool, worker: str, claim: Claim) -> Running:
        stream = self.streams[claim.queue]
        takes = stream.takes * self.luck.uniform(0.6, 1.4)
        if turns := self.turns.get(claim.id):
            takes = turns[0].takes
        figures = self._measured(claim)
        figures.started += 1
        figures.wait.add(max(0, self.now - (claim.due_at or claim.created_at)))
        if claim.leased is not None:
            self._use(claim.leased.pool).uses += 1
        return Running(pool.name, worker, self.now, self.now + round(takes * SECOND), claim)

    async def _settle(self) -> None:
        over = [one for one in self.running if one.ends <= self.now]
        self.running = [one for one in self.running if one.ends > self.now]
        settled = [self._settlement(one, *self._outcome(one.claim)) for one in over]
        for one in over:
            self._measured(one.claim).run.add(one.ends - one.began)
        if settled:
            await self.store.settle(settled)
            self.done += len(settled)

    def _settlement(self, one: Running, outcome: Outcome, report: Report | None) -> Settlement:
        claim, ran = one.claim, min(one.ends, self.now) - one.began
        self._worked(one, failed=not isinstance(outcome, Completed), ran=ran)
        return Settlement(
            id=claim.id,
            token=claim.token,
            transition=decide(claim, outcome, self.policy, self.now, 0.5),
            ran=ran,
            worker=one.worker,
            report=report,
        )

    def _outcome(self, claim: Claim) -> tuple[Outcome, Report | None]:
        """How a run ends, and what it says of its member."""
        if turns := self.turns.get(claim.id):
            return turns.pop(0)[1:]
        report = self._report(claim)
        if report is not None and report.error is not None:
            self._refused(claim, report)
            error = TaskError(category="resource", type="RateLimited", message=report.error)
            return Rotated(error), report
        share, *errors = self.fails.get(claim.queue, (0.0,))
        if errors and self.luck.random() < (share if claim.attempt == 1 else 0.9):
            error = errors[self._dice.randrange(len(errors))]
            return Failed(filled(error, msgspec.json.decode(claim.params).get("url", ""))), report
        return Completed(), report

    def _report(self, claim: Claim) -> Report | None:
        if claim.leased is None:
            return None
        own = self.reports.get(claim.leased.name)
        outcome = ResourceOutcome.OK if own or not self.uses else self.uses.pop(0)
        report = own.pop(0) if own else Report(outcome=outcome)
        if self.sites:
            used = self._use(claim.leased.pool).destinations
            site = report.destination or self._dice.choices(list(self.sites), list(self.sites.values()))[0]
            used[site] = used.get(site, 0) + 1
        return report

    def _refused(self, claim: Claim, report: Report) -> None:
        if claim.leased is not None and report.destination is not None:
            found = self._use(claim.leased.pool).refusals
            found[report.destination] = found.get(report.destination, 0) + 1

    def _worked(self, one: Running, *, failed: bool, ran: int) -> None:
        about = {"succeeded": int(not failed), "failed": int(failed), "busy": ran, "last": self.now}
        for known in (self._did, self._total):
            host = next(host for pool in self.pools for host, name in self.names(pool) if name == one.worker)
            new = WorkerSample(host, one.worker, one.pool, **about)
            known.setdefault(one.worker, WorkerSample(host, one.worker, one.pool)).merge(new)

    def _measured(self, claim: Claim) -> HandlerFigures:
        return self._figures.setdefault(claim.handler, HandlerFigures(claim.queue, claim.handler))

    def _use(self, pool: str) -> ResourceSample:
        return self._used.setdefault(pool, ResourceSample())

    async def _sample(self) -> None:
        """What the managers measured in the last ten seconds; one of them tells it all."""
        session = next(iter(self.sessions.values()), None)
        if session is not None:
            at = bucket(self.now - 5 * SECOND, 10 * SECOND)
            pools = {pool.name: self._pool_sample(pool) for pool in self.pools}
            for reading in await list_resource_pools(self.store, self.now):
                conditions = Counter(one.condition.value for one in reading.members)
                usable = sum(conditions[name] for name in ("ready", "busy", "resting"))
                self._use(reading.name).merge(
                    ResourceSample({name: 10 * n for name, n in conditions.items()}, usable=10 * usable)
                )
            found = Sample(
                at=at, session=session, covered=10, led=10, handlers=list(self._figures.values()), pools=pools,
                resources=self._used, workers=list(self._did.values()),
            )  # fmt: skip
            await self.store.add_samples([found])
        self._figures, self._used, self._did = {}, {}, {}

    def _pool_sample(self, pool: Pool) -> PoolSample:
        names = [name for _, name in self.names(pool)]
        busy = {one.worker for one in self.running if one.pool == pool.name}
        states = Counter(self.states.get(name, "processing" if name in busy else "idle") for name in names)
        memory = 10 * len(names) * (pool.rss >> 20)
        for name in names:
            self._did.setdefault(name, WorkerSample("", name, pool.name)).alive = 10
        return PoolSample({str(name): 10 * n for name, n in states.items()}, memory)

    async def _prune(self) -> None:
        for one in self._streams():
            if not one.kept:
                await self.store.prune(by(state="completed", queue=one.queue), limit=100_000)

    async def _fire(self) -> None:
        """What the leader does for schedules."""
        session = next(iter(self.sessions.values()))
        schedules = await self.store.schedules()
        known = {one.name: one for one in await self.store.handlers()}
        states = {task: found for one in schedules for task, found in await self._open(one)}
        due = [firing(one, known.get(one.spec.handler), self.now, states) for one in schedules]
        if firings := [one for one in due if one is not None]:
            await self.store.fire(firings, term=(await self.store.campaign(session)).term)

    async def _open(self, schedule: Any) -> list[tuple[str, Any]]:
        ids = [task for _, task in schedule.open]
        found = await self.store.get(ids)
        return [(task, None if one is None else one.state) for task, one in zip(ids, found, strict=True)]

    def _poisson(self, mean: float) -> int:
        whole = int(mean)
        return whole + (self.luck.random() < mean - whole)


def filled(error: TaskError, url: str) -> TaskError:
    """The error with the address that the task was about."""
    return msgspec.structs.replace(
        error, message=error.message.replace("{url}", url), traceback=error.traceback.replace("{url}", url)
    )
