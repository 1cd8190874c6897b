"""The six verbs over a `Book`. What the other engines must equal."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.memory.book import Book
from pitboss.engines.memory.taking import Taking
from pitboss.engines.protocol import Clock, Failpoint
from pitboss.model.batch import BatchStatus
from pitboss.model.batching import Waiting
from pitboss.model.duration import Moment
from pitboss.model.leasing import tried_after
from pitboss.model.outcome import Transition
from pitboss.model.resource import Report
from pitboss.model.session import Reclaimed, Renewal
from pitboss.model.settlement import APPLIED, STALE_CLAIM, STALE_SESSION, STALE_TASK, SettleAnswer, Settlement
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt, NewTask, Placed, Task, Token


class MemoryEngine(Taking):
    """A whole store in one object. Several clients may share it by sharing the object."""

    name = "memory"

    def __init__(self, *, clock: Clock, failpoint: Failpoint | None = None) -> None:
        super().__init__(Book(), clock, failpoint)
        self._rung: set[str] = set()
        # In the order of coming, not a set: a simulation must wake them in the same order every time.
        self._waiters: dict[asyncio.Event, None] = {}

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self.ring(self.book.queues)

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        self._reach("put.before")
        now = self.clock.now()
        self.book.check_room(tasks, now)
        placed = [self.book.place(new, now) for new in tasks]
        ready = {self.book.tasks[one.id].queue for one in placed if one.created and one.state is State.PENDING}
        self.ring(ready)
        self._reach("put.after")
        return placed

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        self._reach("renew.before")
        now = self.clock.now()
        if not self._alive(session, now):
            return Renewal(alive=False)
        known = self.book.sessions[session]
        expires_at = now + known.info.ttl
        self.book.sessions[session] = msgspec.structs.replace(
            known, expires_at=expires_at, snapshot=known.snapshot if snapshot is None else snapshot
        )
        cancels = tuple(
            (task.id, Token(session, task.claim))
            for task in self.book.in_state(State.RUNNING)
            if task.session == session and task.cancel_asked
        )
        self._reach("renew.after")
        return Renewal(alive=True, expires_at=expires_at, cancels=cancels, desired=self.book.version)

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        self._reach("settle.before")
        now = self.clock.now()
        verdicts = []
        for settlement in settlements:
            verdicts.append(self._settle(settlement, now))
            self.close_batches(now)
        self._reach("settle.after")
        return verdicts

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        self._reach("reclaim.before")
        now = self.clock.now()
        orphans = [
            task
            for task in self.book.in_state(State.RUNNING)
            if task.session is None or not self._alive(task.session, now)
        ]
        cancelled = sum(self._lose(task, now) for task in orphans[:limit])
        released = self.release_held(self._served(now), now, limit)
        leases = self.end_old_leases(limit, now)
        called_off, more = self._sweep_batches(limit, now)
        self._forget_old_sessions(now)
        self._reach("reclaim.after")
        return Reclaimed(
            lost=len(orphans[:limit]) - cancelled,
            cancelled=cancelled + called_off,
            released=released,
            leases=leases,
            more=more or len(orphans) > limit or limit in (released, leases),
        )

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        event = asyncio.Event()
        self._waiters[event] = None
        try:
            async with asyncio.timeout(timeout):
                while not self._heard(queues):
                    event.clear()
                    await event.wait()
                return True
        except TimeoutError:
            return False
        finally:
            self._waiters.pop(event, None)

    def ring(self, queues: Iterable[str]) -> None:
        self._rung.update(queues)
        for event in self._waiters:
            event.set()

    def _heard(self, queues: Sequence[str] | None) -> bool:
        heard = set(self._rung) if queues is None else self._rung.intersection(queues)
        self._rung -= heard
        return bool(heard)

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        token, transition = settlement.token, settlement.transition
        task = self.book.tasks.get(settlement.id)
        if task is None:
            return STALE_TASK
        ours = task.session == token.session and task.claim == token.claim
        if ours and task.state is not State.RUNNING and task.outcome == transition.outcome:
            return APPLIED
        if not self._alive(token.session, now):
            return STALE_SESSION
        if not ours or task.state is not State.RUNNING:
            return STALE_CLAIM
        if transition.state is State.RUNNING:
            self.book.move(task, State.RUNNING, progress=transition.progress, note=transition.note)
            return APPLIED
        self._apply(task, settlement, now)
        for new in transition.follow_ups:
            self.place_and_ring(new, now)
        return APPLIED

    def _apply(self, task: Task, settlement: Settlement, now: Moment) -> None:
        transition = settlement.transition
        started = task.started_at if settlement.ran is None else now - settlement.ran
        run_at = now + transition.delay if transition.state is State.SCHEDULED and transition.delay else task.run_at
        state, reason = self._next_place(task, transition, run_at, now)
        over = state in FINISHED
        if not over and transition.recorded:
            run = Attempt(
                claim=task.claim,
                attempt=task.attempts + 1,
                outcome=transition.outcome,
                started_at=started or now,
                ended_at=now,
                session=task.session,
                worker=settlement.worker,
                error=transition.error,
            )
            self.book.record(task.id, run)
        self.book.move(
            task,
            state,
            outcome=transition.outcome,
            attempts=task.attempts + (1 if over or transition.charged else 0),
            losses=task.losses + transition.lost,
            crashes=task.crashes + transition.crashed,
            result=transition.result,
            error=transition.error if over else transition.error or task.error,
            reason=reason,
            run_at=task.run_at if over else run_at,
            worker=settlement.worker,
            started_at=started if over else None,
            finished_at=now if over else None,
            cancel_asked=False,
            tried=() if state is State.COMPLETED else self._tried(task, settlement.report),
            rotations=0 if state is State.COMPLETED else task.rotations + transition.rotated,
        )
        self.hand_back(task, settlement.report, now)
        if state is State.PENDING:
            self.ring([task.queue])

    def _next_place(self, task: Task, transition: Transition, run_at: Moment | None, now: Moment) -> Waiting:
        """Where the task goes: as was decided, unless it was called off, or its batch holds it back."""
        if transition.state in WAITING and task.cancel_asked:
            return Waiting(State.CANCELLED, task.reason)
        if transition.state in WAITING and self.book.waits(task, run_at, now).state is State.HELD:
            return self.book.waits(task, run_at, now)
        return Waiting(transition.state, transition.reason)

    def _tried(self, task: Task, report: Report | None) -> tuple[str, ...]:
        if report is None or task.resource is None:
            return task.tried
        return tried_after(task.tried, task.resource.split("/", 1)[1], report.outcome)

    def _sweep_batches(self, limit: int, now: Moment) -> tuple[int, bool]:
        """No batch depends on a single event: see to free slots, and to what is left of a cancellation."""
        cancelled, more = 0, False
        for batch in [batch for line in self.book.lines.values() for batch in line.values()]:
            if batch.status is BatchStatus.CANCELLING:
                changed, left = self.cancel_items(batch, limit - cancelled, now)
                cancelled, more = cancelled + changed, more or left
        self.close_batches(now)
        for lane in self.book.lanes:
            self.promote(lane, now)
        return cancelled, more

    def _lose(self, task: Task, now: Moment) -> bool:
        """Take a task back from a dead session; True if it ends there, because somebody had asked to cancel it."""
        self.hand_back(task, None, now)
        if not task.cancel_asked:
            run = Attempt(
                claim=task.claim,
                attempt=task.attempts + 1,
                outcome="lost",
                started_at=task.started_at or now,
                ended_at=now,
                session=task.session,
            )
            self.book.record(task.id, run)
            place = self.book.waits(task, None, now)
            self.book.move(
                task,
                place.state,
                outcome="lost",
                losses=task.losses + 1,
                session=None,
                started_at=None,
                reason=place.reason or task.reason,
            )
            self.ring([task.queue])
            return False
        self.book.move(
            task,
            State.CANCELLED,
            outcome="lost",
            losses=task.losses + 1,
            attempts=task.attempts + 1,
            session=None,
            finished_at=now,
            cancel_asked=False,
        )
        return True
