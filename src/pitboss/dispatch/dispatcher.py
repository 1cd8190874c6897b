"""Claims tasks for the workers of one session, and settles their outcomes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from pitboss.dispatch.claimer import Claimer
from pitboss.dispatch.measuring import Measurements
from pitboss.dispatch.session_keeper import SessionKeeper
from pitboss.dispatch.settler import Outcomes, Settler, Told, settlement_of
from pitboss.dispatch.worker_group import Worker, WorkerGroup, WorkerLoad
from pitboss.engines.protocol import Clock, Engine, Store
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import SessionLost, StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Cancelled, Outcome, Released, lost_outcome, progressed
from pitboss.model.outdone import SentAway
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.resource import Report, UseEnd
from pitboss.model.session import Renewal, Session, SessionInfo
from pitboss.model.task import Claim, Token

_SWEEP_SECONDS = 0.25


class Dispatcher:
    """The tasks of one session. The caller adds workers, and reports the outcomes of the claims that they get.

    `clock` gives the time, `luck` a number in [0, 1) for each backoff and pause. `make_keeper` makes an engine for the
    thread that renews the session; without it the session is renewed in this loop, as a simulation needs it.
    `claimer.slot_numbers.node` is the manager's name in the slots of its workers; by default the session's host.
    """

    def __init__(
        self,
        engine: Store,
        info: SessionInfo,
        *,
        clock: Clock,
        luck: Callable[[], float],
        policies: Callable[[str], Policy],
        make_keeper: Callable[[], Engine] | None = None,
        snapshot: Callable[[], str | None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine, self._info = engine, info
        self._make_keeper, self._snapshot, self._on_lost = make_keeper, snapshot, on_lost
        # Gets the errors of renewals.
        self.troubled: Callable[[StoreUnavailable], None] = lambda _error: None
        self._renewed_at = 0.0
        self._groups: dict[tuple[str, tuple[str, ...] | None], WorkerGroup] = {}
        self._workers: dict[str, WorkerLoad] = {}
        self._time = asyncio.get_running_loop().time
        self._settler = Settler(engine, self._wake)
        self.outcomes = Outcomes(self._settler, policies, clock, luck)
        self.claimer = Claimer(engine, info, self.outcomes, luck)
        self._tasks: list[asyncio.Task[None]] = []
        self._claiming: asyncio.Task[None] | None = None
        self._keeper: SessionKeeper | None = None
        self._paused: set[str] = set()
        self._admits: Callable[[Claim], bool] | None = None
        self._measured: Measurements | None = None
        self.session: Session | None = None
        self.lost = False
        self.fault: Exception | None = None
        self.desired = 0

    def on_sent_away(self, told: Callable[[SentAway], None]) -> None:
        """Call this for each member that the store sends away because others outdid it."""
        self._settler.sent_away = told

    def measure(self, measured: Measurements) -> None:
        """Note in these measurements what the tasks of this session do. Call it before the first worker is added."""
        self._measured = self.claimer.measured = measured

    def _wake(self) -> None:
        self.claimer.wake.set()

    async def start(self) -> Session:
        """Open the session and start claiming."""
        self.session = self.claimer.session = session = await self._engine.open_session(self._info)
        self._renewed_at = self._time()
        self._keeper = keeper = SessionKeeper(
            session.number,
            self._info.ttl,
            told=self._renewed,
            lost=self._session_lost,
            snapshot=self._snapshot,
            troubled=self.troubled,
        )
        self._claiming = asyncio.create_task(self._guarded(self.claimer.run))
        duties = (self._settler.run, self._sweep)
        self._tasks = [self._claiming, *(asyncio.create_task(self._guarded(duty)) for duty in duties)]
        if self._make_keeper:
            keeper.start_thread(self._make_keeper)
        else:
            self._tasks.append(asyncio.create_task(keeper.keep(self._engine)))
        return session

    def add_worker(
        self,
        worker: Worker,
        *,
        pool: str = "default",
        queues: tuple[str, ...] | None = None,
        rest: Callable[[], float] | None = None,
        place: int | None = None,
    ) -> None:
        """A worker is ready for tasks. `rest` says how many seconds it pauses after each task. `place` is its number
        among the workers of its pool, from 0 on, which its successor gets too; without it, the next free one. One that
        is known already keeps its tasks and its place."""
        group = self._groups.get((pool, queues))
        if group is None:
            group = self._groups[pool, queues] = WorkerGroup(pool, queues)
            self.claimer.groups.append(group)
        group.rest, group.paused, group.admits = rest, pool in self._paused, self._admits
        group.measured = self._measured
        if worker.id not in self._workers:
            others = (load.place for load in self._workers.values() if load.group.pool == pool and not load.closed)
            place = self.claimer.slot_numbers.place(pool, place, others)
            self._workers[worker.id] = group.add(worker, self._time(), place)
        group.hand_out()
        self._wake()

    def set_places(self, places: Mapping[str, Iterable[int]]) -> None:
        """The places that the workers of each pool have, or will have: it takes slots for these, and gives up others.
        A pool that is left out has none."""
        if self.claimer.slot_numbers.set_places(places):
            self._wake()

    def need_slots(self, pools: Iterable[PoolSpec], divided: Collection[str]) -> None:
        """Take slots now for the pools that serve one of these queues, which have partitions. Without this call they
        are taken when a claim meets such a queue."""
        for pool in pools:
            if divided and (pool.queues is None or not set(divided).isdisjoint(pool.queues)):
                self.claimer.slot_numbers.need(pool.name, pool.queues)

    def close_worker(self, worker_id: str) -> None:
        """Give this worker no more tasks; those that run there continue."""
        load = self._workers.get(worker_id)
        if load is not None:
            load.closed = True
            load.worker.recall()
            if load.reserved is not None:
                claim, load.reserved = load.reserved, None
                self._move(claim, load.group)

    def remove_worker(self, worker_id: str, outcome: Outcome | None = None) -> list[Claim]:
        """A worker is gone. The tasks that ran there are lost and returned; those that had not started go back.

        `outcome` is settled for the lost tasks; without it they crashed. A crash counts as alone only if one task ran.
        """
        load = self._workers.pop(worker_id, None)
        if load is None:
            return []
        del load.group.workers[worker_id]
        # A claim for this worker may be on its way: it must go back, not start here.
        load.closed = True
        lost = load.started
        for claim in lost:
            # Its process is dead, but a request may be on its way: its use stays at the last possible moment.
            self.outcomes.settle(claim, lost_outcome(outcome, len(lost)), worker=load.worker.name)
        for claim in list(load.running.values())[len(lost) :]:
            self.outcomes.unstarted(claim)
            if self._measured is not None:
                self._measured.unstarted(claim)
        if load.reserved is not None:
            self._move(load.reserved, load.group)
        self._wake()
        return lost

    def _move(self, claim: Claim, group: WorkerGroup) -> None:
        """Its worker cannot take it any more: another one may, unless it was claimed for that worker."""
        if group.divided:
            self.outcomes.unstarted(claim)
        else:
            group.accept([claim], self._time())

    def set_admission(self, admits: Callable[[Claim], bool] | None) -> None:
        """From now on, start only tasks that `admits` accepts."""
        self._admits = admits
        for group in self._groups.values():
            group.admits = admits

    def set_paused(self, pool: str, paused: bool) -> None:
        """A paused pool takes no new tasks. What runs continues; what has not started goes back."""
        (self._paused.add if paused else self._paused.discard)(pool)
        for group in self._groups.values():
            if group.pool == pool and group.paused != paused:
                group.paused = paused
                if paused:
                    self.claimer.empty(group)
        self._wake()

    def finish(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        worker: str,
        worker_id: str | None = None,
        ran: Span | None = None,
        told: Told | None = None,
        report: Report | None = None,
        use_end: UseEnd | None = None,
    ) -> None:
        """A worker reports the outcome of a claim, and on its resource. `told` gets the store's answer."""
        self.outcomes.settle(claim, outcome, worker=worker, ran=ran, told=told, report=report, use_end=use_end)
        if self._measured is not None:
            self._measured.ended(claim, outcome, ran, report)
        load = self._workers.get(worker_id or worker)
        if load is not None:
            group = load.group
            group.ended(load, claim, self._time())
            if load.resting and group.rest is not None:
                self._rest(load, group.rest())
            if self.claimer.draining or group.hungry:
                self._wake()

    def set_rest(self, pool: str, rest: Callable[[], float] | None) -> None:
        """How many seconds the workers of a pool pause after each task; a longer pause that has begun is shortened."""
        now = self._time()
        for group in self._groups.values():
            if group.pool == pool:
                group.set_rest(rest, now)
        for load in [load for load in self._workers.values() if load.group.pool == pool]:
            lasting = [one for one in load.rests if one.when() > now]
            load.rests = []
            for one in lasting:
                one.cancel()
                self._rest(load, min(one.when() - now, rest() if rest is not None else 0.0))

    def _rest(self, load: WorkerLoad, seconds: float) -> None:
        now = self._time()
        load.rests = [one for one in load.rests if one.when() > now]
        load.rests.append(asyncio.get_running_loop().call_later(seconds, self._rested, load))

    def _rested(self, load: WorkerLoad) -> None:
        load.resting -= 1
        if not load.resting:
            load.group.hand_out()
            self._wake()

    def progress(self, claim: Claim, percent: int, note: str | None, told: Told | None = None) -> None:
        """A worker reports the progress of a claim."""
        self._settler.add(settlement_of(claim, progressed(percent, note)), told)

    def running(self) -> list[Claim]:
        """The claims that the workers have now."""
        return [claim for load in self._workers.values() for claim in load.running.values()]

    def started(self) -> list[Claim]:
        """The claims that run now, without those that wait in a worker for a free slot."""
        return [claim for load in self._workers.values() for claim in load.started]

    @property
    def unwritten(self) -> int:
        """How many outcomes are not in the store yet."""
        return self._settler.backlog

    @property
    def expires_in(self) -> float:
        """How many seconds the session lives if it is not renewed."""
        return self._renewed_at + self._info.ttl / SECOND - self._time()

    def room(self, pool: str) -> int:
        """How many more tasks the workers of a pool could start now."""
        groups = (group for group in self._groups.values() if group.pool == pool)
        return sum(load.room for group in groups for load in group.workers.values())

    def room_of(self, worker_id: str) -> int:
        """How many more tasks this worker could start now."""
        load = self._workers.get(worker_id)
        return 0 if load is None or load.group.paused else load.room

    def quiet(self, on: bool = True) -> None:
        """Claim nothing, and give back what has not started; or claim again."""
        self.claimer.draining = on
        if on:
            for group in self._groups.values():
                self.claimer.empty(group)
        self._wake()

    async def drain(self, timeout: float) -> list[Claim]:
        """Claim nothing, give back what has not started, and wait; returns what still runs at the time limit."""
        self.quiet()
        try:
            async with asyncio.timeout(timeout):
                while self.running():
                    self.claimer.wake.clear()
                    await self.claimer.wake.wait()
        except TimeoutError:
            pass
        return self.running()

    async def stop(self, *, flush_seconds: float = 5.0) -> None:
        """End the session: write what has ended, give back everything else."""
        self.claimer.draining = self.claimer.stopping = True
        self._wake()
        if not self.lost:
            for group in self._groups.values():
                for claim in group.empty_buffer():
                    self.outcomes.unstarted(claim)
            for claim in self.running():
                self.outcomes.settle(claim, Released(started=True))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(flush_seconds):
                    await self._last_claim_given_back()
                    await self._settler.flushed()
        if self._keeper:
            self._keeper.stop()
        await self._end_tasks()
        if self.session and not self.lost:
            with contextlib.suppress(StoreUnavailable):
                await self._engine.end_session(self.session.number)

    async def _last_claim_given_back(self) -> None:
        """Wait for the claim that is under way: the store may have made it already, so it must not be cut off."""
        if self._claiming is not None:
            await asyncio.wait({self._claiming})
        if self.claimer.lost_claims.expected and self.session is not None and not self.lost:
            with contextlib.suppress(StoreUnavailable):
                await self.claimer.lost_claims.give_back(self.session.number, self._time())

    def renew_now(self) -> None:
        """Renew the session at once: the snapshot has changed."""
        if self._keeper is not None:
            self._keeper.renew_now()

    async def flushed(self) -> None:
        """Returns once every outcome reported so far is in the store."""
        await self._settler.flushed()

    async def _guarded(self, duty: Callable[[], Awaitable[None]]) -> None:
        """If a duty breaks, end the session: otherwise it would stay alive without doing anything."""
        try:
            await duty()
        except SessionLost:
            self._session_lost()
        except Exception as error:
            self.fault = error
            self._session_lost()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for group in self._groups.values():
                for claim in group.take_stale(self._time()):
                    self.outcomes.give_back(claim, group)
                for load in group.workers.values():
                    if load.stalled(self._time()):
                        load.worker.recall()
                if group.ease(self._time()):
                    self._wake()

    def _renewed(self, renewal: Renewal) -> None:
        self.desired, self._renewed_at = renewal.desired, self._time()
        for task, token in renewal.cancels:
            self._cancel(task, token)

    def _cancel(self, task: TaskId, token: Token) -> None:
        for group in self._groups.values():
            claim = group.cancel(task, token)
            if claim is not None:
                self.outcomes.unstarted(claim, Cancelled("cancelled before it started"))
                return

    def _session_lost(self) -> None:
        if not self.lost:
            self.lost = self.claimer.stopping = True
            for group in self._groups.values():
                group.empty_buffer()
            self._wake()
            self._on_lost()

    async def _end_tasks(self) -> None:
        tasks: list[asyncio.Task[None] | asyncio.Task[bool]] = [
            *self._tasks,
            *([self.claimer.ring] if self.claimer.ring else []),
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
