"""Claims tasks for the workers of one session, and settles their outcomes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from pitboss.dispatch.session_keeper import SessionKeeper
from pitboss.dispatch.settler import LostClaims, Settler, Told, settlement_of, unmade
from pitboss.dispatch.worker_group import Worker, WorkerGroup, WorkerLoad
from pitboss.engines.protocol import Clock, Engine, Store
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import SessionLost, StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.outcome import NO_KEY, Cancelled, Outcome, Released, Transition, decide, lost_outcome, progressed
from pitboss.model.outdone import SentAway
from pitboss.model.placement import NO_MEMORY
from pitboss.model.policy import Policy
from pitboss.model.resource import Leased, Report, UseEnd
from pitboss.model.session import Claimed, ClaimRequest, Renewal, Session, SessionInfo
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, Token

POLL_SECONDS = 2.0
_SWEEP_SECONDS = 0.25
_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
# When a member of a resource pool is released, every manager is rung. The one that released it claims at once; the
# others wait this long, or up to twice as long, so that they do not compete for the same rows. They do so only once.
_BACK_OFF = 0.005
_NO_MEMORY = Transition(
    state=State.SCHEDULED,
    outcome="released",
    delay=2 * SECOND,
    reason=NO_MEMORY,
    recorded=False,
)
Noted = Callable[[Claim, Settlement], None]


class Dispatcher:
    """The tasks of one session. The caller adds workers, and reports the outcomes of the claims that they get.

    `clock` gives the time, `luck` a number in [0, 1) for each backoff and pause. `make_keeper` makes an engine for the
    thread that renews the session; without it the session is renewed in this loop, as a simulation needs it. `noted`
    gets each decision before the store has written it: for people to watch, not to rely on.
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
        self._clock, self._luck, self._policies = clock, luck, policies
        self._make_keeper, self._snapshot, self._on_lost = make_keeper, snapshot, on_lost
        self.noted: Noted | None = None
        # Gets the errors of renewals.
        self.troubled: Callable[[StoreUnavailable], None] = lambda _error: None
        self._renewed_at = 0.0
        self._groups: dict[tuple[str, tuple[str, ...] | None], WorkerGroup] = {}
        self._workers: dict[str, WorkerLoad] = {}
        self._time = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._settler = Settler(engine, self._wake.set)
        self._lost_claims = LostClaims(engine, self._settler, self._knows)
        self._ring: asyncio.Task[bool] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._claiming: asyncio.Task[None] | None = None
        self._keeper: SessionKeeper | None = None
        self._draining = self._stopping = False
        self._paused: set[str] = set()
        self._admits: Callable[[Claim], bool] | None = None
        self._may_back_off = True
        self._only: frozenset[str] | None = None
        # Resource pools of members that came and cannot be opened here: their queues are to be left out of claims
        # until the next `claim_only`.
        self._unopened: set[str] = set()
        # Whether the secrets of a member can be opened on this host; None if that is not known.
        self.opens: Callable[[Leased], bool] | None = None
        self.session: Session | None = None
        self.lost = False
        self.fault: Exception | None = None
        # The store has rung; the reader resets it.
        self.rung = False
        self.on_ring: Callable[[], None] = lambda: None
        self.desired = 0

    def on_sent_away(self, told: Callable[[SentAway], None]) -> None:
        """Call this for each member that the store sends away because others outdid it."""
        self._settler.sent_away = told

    async def start(self) -> Session:
        """Open the session and start claiming."""
        self.session = session = await self._engine.open_session(self._info)
        self._renewed_at = self._time()
        self._keeper = keeper = SessionKeeper(
            session.number,
            self._info.ttl,
            told=self._renewed,
            lost=self._session_lost,
            snapshot=self._snapshot,
            troubled=self.troubled,
        )
        self._claiming = asyncio.create_task(self._guarded(self._claim_until_stopped))
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
    ) -> None:
        """A worker is ready for tasks. `rest` says how many seconds it pauses after each task."""
        group = self._groups.get((pool, queues))
        if group is None:
            group = self._groups[pool, queues] = WorkerGroup(pool, queues)
        group.rest, group.paused, group.admits = rest, pool in self._paused, self._admits
        self._workers[worker.id] = group.add(worker, self._time())
        group.hand_out()
        self._wake.set()

    def close_worker(self, worker_id: str) -> None:
        """Give this worker no more tasks; those that run there continue."""
        load = self._workers.get(worker_id)
        if load is not None:
            load.closed = True
            load.worker.recall()
            if load.reserved is not None:
                claim, load.reserved = load.reserved, None
                load.group.accept([claim], self._time())

    def remove_worker(self, worker_id: str, outcome: Outcome | None = None) -> list[Claim]:
        """A worker is gone. The tasks that ran there are lost and returned; those that had not started go back.

        `outcome` is settled for the lost tasks; without it they crashed. A crash counts as alone only if one task ran.
        """
        load = self._workers.pop(worker_id, None)
        if load is None:
            return []
        del load.group.workers[worker_id]
        lost = load.started
        for claim in lost:
            # Its process is dead, but a request may be on its way: its use stays at the last possible moment.
            self._settle(claim, lost_outcome(outcome, len(lost)), worker=load.worker.name)
        for claim in list(load.running.values())[len(lost) :]:
            self._unstarted(claim)
        if load.reserved is not None:
            load.group.accept([load.reserved], self._time())
        self._wake.set()
        return lost

    def set_admission(self, admits: Callable[[Claim], bool] | None) -> None:
        """From now on, start only tasks that `admits` accepts."""
        self._admits = admits
        for group in self._groups.values():
            group.admits = admits

    def claim_only(self, queues: frozenset[str] | None) -> None:
        """From now on, claim from these queues only; None: from all."""
        if queues != self._only or self._unopened:
            self._only, self._unopened = queues, set()
            self._wake.set()

    def set_paused(self, pool: str, paused: bool) -> None:
        """A paused pool takes no new tasks. What runs continues; what has not started goes back."""
        (self._paused.add if paused else self._paused.discard)(pool)
        for group in self._groups.values():
            if group.pool == pool and group.paused != paused:
                group.paused = paused
                if paused:
                    self._empty(group)
        self._wake.set()

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
        self._settle(claim, outcome, worker=worker, ran=ran, told=told, report=report, use_end=use_end)
        load = self._workers.get(worker_id or worker)
        if load is not None:
            group = load.group
            group.ended(load, claim, self._time())
            if load.resting and group.rest is not None:
                asyncio.get_running_loop().call_later(group.rest(), self._rested, load)
            if self._draining or group.hungry:
                self._wake.set()

    def _rested(self, load: WorkerLoad) -> None:
        load.resting -= 1
        if not load.resting:
            load.group.hand_out()
            self._wake.set()

    def _empty(self, group: WorkerGroup) -> None:
        """Give back everything that has not started."""
        for load in group.workers.values():
            load.worker.recall()
        for claim in group.empty_buffer():
            self._unstarted(claim)

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

    def quiet(self, on: bool = True) -> None:
        """Claim nothing, and give back what has not started; or claim again."""
        self._draining = on
        if on:
            for group in self._groups.values():
                self._empty(group)
        self._wake.set()

    async def drain(self, timeout: float) -> list[Claim]:
        """Claim nothing, give back what has not started, and wait; returns what still runs at the time limit."""
        self.quiet()
        try:
            async with asyncio.timeout(timeout):
                while self.running():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass
        return self.running()

    async def stop(self, *, flush_seconds: float = 5.0) -> None:
        """End the session: write what has ended, give back everything else."""
        self._draining = self._stopping = True
        self._wake.set()
        if not self.lost:
            for group in self._groups.values():
                for claim in group.empty_buffer():
                    self._unstarted(claim)
            for claim in self.running():
                self._settle(claim, Released(started=True))
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
        if self._lost_claims.expected and self.session is not None and not self.lost:
            with contextlib.suppress(StoreUnavailable):
                await self._lost_claims.give_back(self.session.number)

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
        except Exception as error:
            self.fault = error
            self._session_lost()

    async def _claim_until_stopped(self) -> None:
        pause = _PAUSE
        while not (self.lost or self._stopping):
            try:
                due = await self._claim_once()
                pause = _PAUSE
            except SessionLost:
                self._session_lost()
                return
            except StoreUnavailable:
                self._lost_claims.expect(self._time())
                due = pause
                pause = min(pause * 2, _LONGEST_PAUSE)
            if due > 0 and not self._stopping:
                await self._woken_within(due)

    async def _claim_once(self) -> float:
        """Claim what the workers can use; returns how many seconds to wait before the next claim."""
        self._wake.clear()
        if self._ring is None or self._ring.done():
            # Listen before the claim: a task that is put during the claim may come too late for it.
            self._ring = asyncio.create_task(self._engine.wait(None, POLL_SECONDS * 5))
        if self._lost_claims.due(self._time()) and self.session is not None:
            await self._lost_claims.give_back(self.session.number)
        if self._unopened:
            await self._leave_out()
        asked = self._time()
        slots = {group: group.slot(self._only) for group in self._groups.values()}
        groups = [group for group, slot in slots.items() if group.wants(slot, asked)]
        stalled = self._draining or self._settler.full
        for group, slot in slots.items():
            # Without a free slot, or without a claim, nothing is known about the resources at the next claim.
            group.starved = group.starved and slot.free > 0 and not stalled
        if stalled or self.session is None:
            return POLL_SECONDS
        if not groups:
            return min([POLL_SECONDS, *(group.waits(slot, asked) for group, slot in slots.items())])
        request = ClaimRequest(
            session=self.session.number,
            slots=tuple(slots[group] for group in groups),
            handlers=frozenset(self._info.handlers) if self._info.handlers else None,
        )
        claimed = await self._engine.claim(request)
        self._may_back_off = self._may_back_off or bool(claimed.claims)
        by_slot: list[list[Claim]] = [[] for _ in groups]
        for claim in claimed.claims:
            by_slot[claim.slot].append(claim)
        for group, claims in zip(groups, by_slot, strict=True):
            group.answered(slots[group], len(claims), self._time(), short=bool(claimed.shortages))
            self._accept(group, claims, asked)
        more = claimed.claims and not all(group.starved for group in groups)
        return 0 if more else self._until(claimed)

    def _knows(self, task: TaskId, token: Token) -> bool:
        return any(group.knows(task, token) for group in self._groups.values())

    def _accept(self, group: WorkerGroup, claims: list[Claim], asked: float) -> None:
        if self.opens is not None and any(claim.leased is not None for claim in claims):
            claims = self._openable(claims, self.opens)
        if self._draining or group.paused:
            for claim in claims:
                self._unstarted(claim)
        else:
            for claim in group.accept(claims, self._time(), asked):
                self._give_back(group, claim)

    def _openable(self, claims: list[Claim], opens: Callable[[Leased], bool]) -> list[Claim]:
        """Give back the tasks whose member cannot be used here."""
        kept = []
        for claim in claims:
            if claim.leased is None or opens(claim.leased):
                kept.append(claim)
            else:
                self._unopened.add(claim.leased.pool)
                self._unstarted(claim, NO_KEY)
        return kept

    async def _leave_out(self) -> None:
        """Claim nothing that needs a pool whose member could not be opened; other queues go on."""
        queues = await self._engine.queues()
        # Empty if `claim_only` came in between: it knows better.
        if self._unopened:
            others = frozenset(queue.name for queue in queues if queue.resources not in self._unopened)
            self._only, self._unopened = others if self._only is None else others & self._only, set()

    def _until(self, claimed: Claimed) -> float:
        if claimed.next_due is None:
            return POLL_SECONDS
        return min(POLL_SECONDS, max(0.001, (claimed.next_due - self._clock.now()) / SECOND))

    async def _woken_within(self, seconds: float) -> None:
        """Sleep until the store rings, `_wake` is set, or the time is over."""
        assert self._ring is not None
        own = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait({self._ring, own}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._ring.done() and not own.done() and self._starved:
                await self._back_off(own)
        finally:
            own.cancel()
        if self._ring.done():
            self.rung = True
            self.on_ring()

    async def _back_off(self, own: "asyncio.Task[bool]") -> None:
        """Back off once, so that the manager that released can claim again; not a second time without a claim."""
        if self._may_back_off:
            self._may_back_off = False
            await asyncio.wait({own}, timeout=_BACK_OFF * (1 + self._luck()))

    @property
    def _starved(self) -> bool:
        """Whether all groups are limited by resources only."""
        return all(group.starved or group.paused for group in self._groups.values())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for group in self._groups.values():
                for claim in group.take_stale(self._time()):
                    self._give_back(group, claim)
                for load in group.workers.values():
                    if load.stalled(self._time()):
                        load.worker.recall()

    def _give_back(self, group: WorkerGroup, claim: Claim) -> None:
        """It may start elsewhere; but if this host lacks memory for it, it must not come back at once."""
        if group.admits is None or group.admits(claim):
            self._unstarted(claim)
        else:
            self._settler.add(settlement_of(claim, _NO_MEMORY, use_end=unmade(claim)))

    def _unstarted(self, claim: Claim, outcome: Outcome | None = None) -> None:
        """Settle a claim that no worker has started: it goes back, or has this outcome."""
        self._settle(claim, outcome or Released(), use_end=unmade(claim))

    def _settle(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        worker: str | None = None,
        ran: Span | None = None,
        told: Told | None = None,
        report: Report | None = None,
        use_end: UseEnd | None = None,
    ) -> None:
        transition = decide(claim, outcome, self._policies(claim.handler), self._clock.now(), self._luck())
        settlement = settlement_of(claim, transition, worker=worker, ran=ran, report=report, use_end=use_end)
        self._settler.add(settlement, told)
        if self.noted is not None:
            self.noted(claim, settlement)

    def _renewed(self, renewal: Renewal) -> None:
        self.desired, self._renewed_at = renewal.desired, self._time()
        for task, token in renewal.cancels:
            self._cancel(task, token)

    def _cancel(self, task: TaskId, token: Token) -> None:
        for group in self._groups.values():
            claim = group.cancel(task, token)
            if claim is not None:
                self._unstarted(claim, Cancelled("cancelled before it started"))
                return

    def _session_lost(self) -> None:
        if not self.lost:
            self.lost = True
            for group in self._groups.values():
                group.empty_buffer()
            self._wake.set()
            self._on_lost()

    async def _end_tasks(self) -> None:
        tasks: list[asyncio.Task[None] | asyncio.Task[bool]] = [*self._tasks, *([self._ring] if self._ring else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
