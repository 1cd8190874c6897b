"""The six verbs over a `Book`. What the other engines must equal."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.memory.book import Book
from pitboss.engines.memory.taking import Taking
from pitboss.engines.protocol import Clock, Failpoint
from pitboss.model.batch import BatchStatus
from pitboss.model.duration import Moment
from pitboss.model.resource import Report
from pitboss.model.session import Reclaimed, Renewal
from pitboss.model.settlement import ClaimEnd, Progress, SettleAnswer, Settlement, effect, lost
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed, Task, Token


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
        task = self.book.tasks.get(settlement.id)
        alive = self._alive(settlement.token.session, now)
        answer, change = effect(task, settlement, alive=alive, batch=self._batch_status(task), now=now)
        if task is not None and isinstance(change, Progress):
            self.book.move(task, State.RUNNING, progress=change.progress, note=change.note)
        elif task is not None and isinstance(change, ClaimEnd):
            self._end_claim(task, change, settlement.report, now)
            for new in settlement.transition.follow_ups:
                self.place_and_ring(new, now)
        return answer

    def _end_claim(self, task: Task, end: ClaimEnd, report: Report | None, now: Moment) -> None:
        if end.run is not None:
            self.book.record(task.id, end.run)
        self.book.write(end.applied_to(task))
        self.hand_back(task, report, now)
        if end.state is State.PENDING:
            self.ring([task.queue])

    def _batch_status(self, task: Task | None) -> BatchStatus | None:
        return None if task is None or task.batch is None else self.book.batches[task.batch].status

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
        """Take a task back from a dead session; True if it ends there, because a cancellation was asked for."""
        end = lost(task, batch=self._batch_status(task), now=now)
        self._end_claim(task, end, None, now)
        if end.state is State.CANCELLED:
            return True
        self.ring([task.queue])
        return False
