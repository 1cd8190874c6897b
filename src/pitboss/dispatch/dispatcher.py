"""Claims tasks for the workers of one session, and settles what comes of them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from pitboss.dispatch.keeper import Keeper
from pitboss.dispatch.settler import Settler, Told
from pitboss.dispatch.settling import dated, settling, unheard
from pitboss.dispatch.worker_group import Worker, WorkerGroup, WorkerSlots
from pitboss.engines.protocol import Clock, Engine, Store
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import SessionLost, StoreUnavailable
from pitboss.model.filter import by
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Cancelled, Crashed, Outcome, Released, Transition, decide, progressed
from pitboss.model.policy import Policy
from pitboss.model.resource import Report
from pitboss.model.session import Claimed, ClaimRequest, Renewal, Session, SessionInfo
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, Token

POLL_SECONDS = 2.0
_SWEEP_SECONDS = 0.25
_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
# Whoever gives a member of a pool back asks for it first: if all who were rung asked at once, each would be in the
# others' way. They ask this much later, and up to twice that: once. Whoever got nothing then asks at once next time.
_COURTESY = 0.005
_PAGE = 1000
# A call that was cut off may still be waiting for a lock in the store, and happen later.
_LOOK_AFTER = (0.0, 2.0, 15.0, 60.0)
_NO_ROOM = Transition(
    state=State.SCHEDULED,
    outcome="released",
    delay=2 * SECOND,
    reason="waiting for memory on a host",
    recorded=False,
)
Noted = Callable[[Claim, Settlement], None]


class Dispatcher:
    """One session's work. The driver adds workers, and tells what came of the claims that they were given.

    `clock` gives the time, `luck` a number in [0, 1) for each backoff and pause. `make_keeper` makes an engine for the
    thread that renews the session; without one the session is renewed in this loop, as a simulation needs it. `noted`
    hears what is decided about each claim, before the store has written it: for people to watch, not to rely on.
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
        self._groups: dict[tuple[str, tuple[str, ...] | None], WorkerGroup] = {}
        self._workers: dict[str, tuple[WorkerGroup, WorkerSlots]] = {}
        self._time = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._settler = Settler(engine, self._wake.set)
        self._ring: asyncio.Task[bool] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._keeper: Keeper | None = None
        self._draining = False
        self._paused: set[str] = set()
        self._admits: Callable[[Claim], bool] | None = None
        self._looks: list[float] = []
        self._courteous = True
        self.session: Session | None = None
        self.lost = False
        self.fault: Exception | None = None
        # Somebody has rung since this was last looked at; whoever looks takes it back.
        self.rung = False
        self.desired = 0

    async def start(self) -> Session:
        """Open the session and begin to claim."""
        self.session = session = await self._engine.open_session(self._info)
        loop = asyncio.get_running_loop()
        self._keeper = keeper = Keeper(
            session.number,
            self._info.ttl,
            told=lambda renewal: _call_in(loop, lambda: self._renewed(renewal)),
            lost=lambda: _call_in(loop, self._session_lost),
            snapshot=self._snapshot,
        )
        duties = (self._settler.run, self._claim_forever, self._sweep)
        self._tasks = [asyncio.create_task(self._guarded(duty)) for duty in duties]
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
        """A worker has come up and has room. `rest` says how many seconds it pauses after each task."""
        group = self._groups.get((pool, queues))
        if group is None:
            group = self._groups[pool, queues] = WorkerGroup(pool, queues)
        group.rest, group.paused, group.admits = rest, pool in self._paused, self._admits
        slots = group.workers[worker.id] = WorkerSlots(worker, self._time())
        self._workers[worker.id] = group, slots
        group.hand_out()
        self._wake.set()

    def close_worker(self, worker_id: str) -> None:
        """No further tasks for this worker; what runs there goes on."""
        if worker_id in self._workers:
            group, slots = self._workers[worker_id]
            slots.closed = True
            slots.worker.recall()
            if slots.reserved is not None:
                claim, slots.reserved = slots.reserved, None
                group.accept([claim], self._time())

    def remove_worker(self, worker_id: str, fate: Outcome | None = None) -> list[Claim]:
        """A worker is gone. What it was given goes back at once; the claims that were running are lost with it.

        `fate` is what came of those. Of a crash that it calls alone it still counts whether there was only one.
        """
        if worker_id not in self._workers:
            return []
        group, slots = self._workers.pop(worker_id)
        del group.workers[worker_id]
        lost = slots.started
        for claim in lost:
            self._settle(claim, _alone(fate, len(lost)), worker=slots.worker.name)
        for claim in list(slots.running.values())[len(lost) :]:
            self._settle(claim, Released())
        if slots.reserved is not None:
            group.accept([slots.reserved], self._time())
        self._wake.set()
        return lost

    def set_admission(self, admits: Callable[[Claim], bool] | None) -> None:
        """From now on only tasks start that `admits` lets start."""
        self._admits = admits
        for group in self._groups.values():
            group.admits = admits

    def set_paused(self, pool: str, paused: bool) -> None:
        """A paused pool takes no new tasks; what runs goes on, what has not started goes back."""
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
    ) -> None:
        """A worker says what came of a claim, and for its resource. `told` hears whether the store took it."""
        self._settle(claim, outcome, worker=worker, ran=ran, told=told, report=report)
        worker_id = worker_id or worker
        if worker_id in self._workers:
            group, slots = self._workers[worker_id]
            group.ended(slots, claim, self._time())
            if slots.resting and group.rest is not None:
                asyncio.get_running_loop().call_later(group.rest(), self._rested, group, slots)
            if self._draining or group.hungry:
                self._wake.set()

    def _rested(self, group: WorkerGroup, slots: WorkerSlots) -> None:
        slots.resting -= 1
        if not slots.resting:
            group.hand_out()
            self._wake.set()

    def _empty(self, group: WorkerGroup) -> None:
        """Give back everything that has not started."""
        for slots in group.workers.values():
            slots.worker.recall()
        for claim in group.empty_buffer():
            self._settle(claim, Released())

    def progress(self, claim: Claim, percent: int, note: str | None, told: Told | None = None) -> None:
        """A worker says how far a claim is."""
        self._settler.add(settling(claim, progressed(percent, note)), told)

    def running(self) -> list[Claim]:
        """What runs in the workers now."""
        return [claim for _, slots in self._workers.values() for claim in slots.running.values()]

    def started(self) -> list[Claim]:
        """Of those, the ones that have a slot to run in."""
        return [claim for _, slots in self._workers.values() for claim in slots.started]

    def room(self, pool: str) -> int:
        """How many more tasks the workers of a pool could start now."""
        groups = (group for group in self._groups.values() if group.pool == pool)
        return sum(slots.room for group in groups for slots in group.workers.values())

    def quiet(self, on: bool = True) -> None:
        """Claim no more, and give back what has not started; or go on."""
        self._draining = on
        if on:
            for group in self._groups.values():
                self._empty(group)
        self._wake.set()

    async def drain(self, timeout: float) -> list[Claim]:
        """Claim no more, give back what has not started, wait for what runs; what still runs at the time limit."""
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
        """End the session: what has not started or not ended goes back, what has ended is written."""
        self._draining = True
        if not self.lost:
            for group in self._groups.values():
                for claim in group.empty_buffer():
                    self._settle(claim, Released())
            for claim in self.running():
                self._settle(claim, Released(started=True))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(flush_seconds):
                    await self._settler.flushed()
        if self._keeper:
            self._keeper.stop()
        await self._end_tasks()
        if self.session and not self.lost:
            with contextlib.suppress(StoreUnavailable):
                await self._engine.end_session(self.session.number)

    def tell_now(self) -> None:
        """Renew the session at once: the snapshot has something new."""
        if self._keeper is not None:
            self._keeper.renew_now()

    async def flushed(self) -> None:
        """Returns once every outcome told so far is in the store."""
        await self._settler.flushed()

    async def _guarded(self, duty: Callable[[], Awaitable[None]]) -> None:
        """A duty that breaks must not leave a session that is alive and deaf: it ends, and a new one can begin."""
        try:
            await duty()
        except Exception as error:
            self.fault = error
            self._session_lost()

    async def _claim_forever(self) -> None:
        pause = _PAUSE
        while not self.lost:
            try:
                due = await self._claim_once()
                pause = _PAUSE
            except SessionLost:
                self._session_lost()
                return
            except StoreUnavailable:
                self._looks = [self._time() + delay for delay in _LOOK_AFTER]
                due = pause
                pause = min(pause * 2, _LONGEST_PAUSE)
            if due > 0:
                await self._woken_within(due)

    async def _claim_once(self) -> float:
        """Claim what can be used; how long nothing more is to be expected, in seconds."""
        self._wake.clear()
        if self._ring is None or self._ring.done():
            # From before the claim: what is rung while it is under way may have come too late for it.
            self._ring = asyncio.create_task(self._engine.wait(None, POLL_SECONDS * 5))
        if self._looks and self._time() >= self._looks[0]:
            await self._give_back_unheard()
            self._looks.pop(0)
        asked = self._time()
        slots = {group: group.slot() for group in self._groups.values()}
        groups = [group for group, slot in slots.items() if group.wants(slot, asked)]
        stalled = self._draining or self._settler.full
        for group, slot in slots.items():
            # What it lacked when it was asked for says nothing about the room that it gets next.
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
        self._courteous = self._courteous or bool(claimed.claims)
        by_slot: list[list[Claim]] = [[] for _ in groups]
        for claim in claimed.claims:
            by_slot[claim.slot].append(claim if claim.leased is None else dated(claim, asked))
        for group, claims in zip(groups, by_slot, strict=True):
            group.answered(slots[group], len(claims), self._time(), short=bool(claimed.shortages))
            self._accept(group, claims)
        more = claimed.claims and not all(group.starved for group in groups)
        return 0 if more else self._until(claimed)

    async def _give_back_unheard(self) -> None:
        """A claim without an answer may have happened: what the store says is ours and we never heard of goes back.

        Nothing else claims meanwhile, so whatever is running under our session and not known here is such a one.
        """
        assert self.session is not None
        number, after = self.session.number, None
        while True:
            page = await self._engine.find(by(state="running", session=str(number)), limit=_PAGE, after=after)
            for task in page.tasks:
                token = Token(number, task.claim)
                if not self._knows(task.id, token):
                    self._settler.add(unheard(task, token))
            after = page.next
            if after is None:
                return

    def _knows(self, task: TaskId, token: Token) -> bool:
        here = (claim.token for _, claim in self._not_started() if claim.id == task)
        there = (slots.running[task].token for _, slots in self._workers.values() if task in slots.running)
        reserved = (
            slots.reserved.token for _, slots in self._workers.values() if slots.reserved and slots.reserved.id == task
        )
        return token in (*here, *there, *reserved) or self._settler.holds(task, token)

    def _accept(self, group: WorkerGroup, claims: list[Claim]) -> None:
        if self._draining or group.paused:
            for claim in claims:
                self._settle(claim, Released())
        else:
            for claim in group.accept(claims, self._time()):
                self._give_back(group, claim)

    def _until(self, claimed: Claimed) -> float:
        if claimed.next_due is None:
            return POLL_SECONDS
        return min(POLL_SECONDS, max(0.001, (claimed.next_due - self._clock.now()) / SECOND))

    async def _woken_within(self, seconds: float) -> None:
        """Sleep until a ring of the store, a wake-up of our own, or the time is over."""
        assert self._ring is not None
        own = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait({self._ring, own}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._ring.done() and not own.done() and self._starved:
                await self._be_courteous(own)
        finally:
            own.cancel()
        self.rung = self.rung or self._ring.done()

    async def _be_courteous(self, own: "asyncio.Task[bool]") -> None:
        """Let others ask first, unless nothing was left the last time: they may have more to do than there is."""
        if self._courteous:
            self._courteous = False
            await asyncio.wait({own}, timeout=_COURTESY * (1 + self._luck()))

    @property
    def _starved(self) -> bool:
        """Whether all who would start something lacked only members of pools."""
        return all(group.starved or group.paused for group in self._groups.values())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for group in self._groups.values():
                for claim in group.take_stale(self._time()):
                    self._give_back(group, claim)
                for slots in group.workers.values():
                    if slots.stalled(self._time()):
                        slots.worker.recall()

    def _give_back(self, group: WorkerGroup, claim: Claim) -> None:
        """What could not start here may start elsewhere; what has no room here must not come back at once."""
        if group.admits is None or group.admits(claim):
            self._settle(claim, Released())
        else:
            self._settler.add(settling(claim, _NO_ROOM))

    def _settle(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        worker: str | None = None,
        ran: Span | None = None,
        told: Told | None = None,
        report: Report | None = None,
    ) -> None:
        transition = decide(claim, outcome, self._policies(claim.handler), self._clock.now(), self._luck())
        settlement = settling(claim, transition, worker=worker, ran=ran, report=report)
        self._settler.add(settlement, told)
        if self.noted is not None:
            self.noted(claim, settlement)

    def _renewed(self, renewal: Renewal) -> None:
        self.desired = renewal.desired
        for task, token in renewal.cancels:
            self._cancel(task, token)

    def _cancel(self, task: TaskId, token: Token) -> None:
        for group, claim in self._not_started():
            if claim.id == task and claim.token == token and group.drop(claim):
                self._settle(claim, Cancelled("cancelled before it started"))
                return
        for _, slots in self._workers.values():
            running = slots.running.get(task)
            if running is not None and running.token == token:
                slots.worker.stop(running)

    def _not_started(self) -> Iterator[tuple[WorkerGroup, Claim]]:
        for group in self._groups.values():
            for claim in group.waiting():
                yield group, claim

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


def _alone(fate: Outcome | None, together: int) -> Outcome:
    """Of a crash it counts whether the task was alone in its worker."""
    if fate is None:
        return Crashed(alone=together == 1)
    return Crashed(alone=fate.alone and together == 1, error=fate.error) if isinstance(fate, Crashed) else fate


def _call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Run it in the loop, from whichever thread; a loop that has ended hears nothing more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
