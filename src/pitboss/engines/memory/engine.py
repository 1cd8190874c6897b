"""The six verbs over a `Book`. What the other engines must equal."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.memory.book import Book
from pitboss.engines.memory.lives import Lives
from pitboss.engines.protocol import (
    APPLIED,
    STALE_CLAIM,
    STALE_SESSION,
    STALE_TASK,
    Clock,
    Failpoint,
    Settlement,
    Verdict,
)
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.limits import allowed, horizon, opens_at
from pitboss.model.session import Claimed, ClaimRequest, Reclaimed, Renewal, Slot
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt, Claim, NewTask, Placed, Task, Token


class MemoryEngine(Lives):
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

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._reach("claim.before")
        now = self.clock.now()
        if not self._alive(request.session, now):
            raise SessionLost(request.session)
        claims: list[Claim] = []
        names = {name for slot in request.slots for name in self._open_queues(slot)}
        self._fall_due(names, now)
        for index, slot in enumerate(request.slots):
            claims += self._fill(slot, index, request, now)
        self._reach("claim.after")
        return Claimed(claims, self._next_due(names, now))

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

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        self._reach("settle.before")
        now = self.clock.now()
        verdicts = [self._settle(settlement, now) for settlement in settlements]
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
        self._forget_old_sessions(now)
        lost = len(orphans[:limit])
        self._reach("reclaim.after")
        return Reclaimed(
            lost=lost - cancelled,
            cancelled=cancelled,
            released=released,
            more=len(orphans) > limit or released == limit,
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

    def _open_queues(self, slot: Slot) -> list[str]:
        names = list(self.book.queues) if slot.queues is None else slot.queues
        return [name for name in names if name in self.book.queues and not self.book.queues[name].paused]

    def _fall_due(self, names: set[str], now: Moment) -> None:
        for task in self.book.in_state(State.SCHEDULED):
            if task.queue in names and task.run_at is not None and task.run_at <= now:
                self.book.move(task, State.PENDING)

    def _fill(self, slot: Slot, index: int, request: ClaimRequest, now: Moment) -> list[Claim]:
        claims: list[Claim] = []
        for task in self.book.pending(self._open_queues(slot)):
            if len(claims) >= slot.free + slot.ahead:
                break
            if task.expires_at is not None and task.expires_at <= now:
                self.book.move(task, State.CANCELLED, reason="expired", finished_at=now)
            elif request.handlers is not None and task.handler not in request.handlers:
                self._pass_by(task, now)
            elif self._may_take(task, now, ahead=len(claims) >= slot.free):
                claims.append(self._take(task, request.session, index, now))
        return claims

    def _pass_by(self, task: Task, now: Moment) -> None:
        if task.handler not in self._known_alive(now):
            self.book.move(task, State.HELD, reason="handler")

    def _may_take(self, task: Task, now: Moment, *, ahead: bool) -> bool:
        rate = self.book.queues[task.queue].rate
        if ahead and (rate or task.losses):
            return False
        return allowed(rate, self.book.starts[task.queue], now) != 0

    def _take(self, task: Task, session: int, index: int, now: Moment) -> Claim:
        rate = self.book.queues[task.queue].rate
        if rate:
            past = [start for start in self.book.starts[task.queue] if start > now - horizon(rate)]
            self.book.starts[task.queue] = [*past, now]
        task = self.book.move(
            task,
            State.RUNNING,
            session=session,
            claim=task.claim + 1,
            started_at=now,
            worker=None,
            reason=None,
            progress=None,
            note=None,
        )
        return Claim(
            id=task.id,
            token=Token(session, task.claim),
            handler=task.handler,
            queue=task.queue,
            params=task.params,
            attempt=task.attempts + 1,
            priority=task.priority,
            max_attempts=task.max_attempts,
            timeout=task.timeout,
            losses=task.losses,
            crashes=task.crashes,
            created_at=task.created_at,
            claimed_at=now,
            expires_at=task.expires_at,
            parent=task.parent,
            tags=task.tags,
            slot=index,
        )

    def _next_due(self, names: set[str], now: Moment) -> Moment | None:
        moments = [
            task.run_at
            for task in self.book.in_state(State.SCHEDULED)
            if task.queue in names and task.run_at is not None
        ]
        for name in names:
            queue = self.book.queues[name]
            if queue.rate and self.book.has_pending(name):
                moments.append(opens_at(queue.rate, self.book.starts[name]))
        return min((moment for moment in moments if moment > now), default=None)

    def _settle(self, settlement: Settlement, now: Moment) -> Verdict:
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
            placed = self.book.place(new, now)
            if placed.created and placed.state is State.PENDING:
                self.ring([new.queue])
        return APPLIED

    def _apply(self, task: Task, settlement: Settlement, now: Moment) -> None:
        transition = settlement.transition
        started = task.started_at if settlement.ran is None else now - settlement.ran
        state = State.CANCELLED if task.cancel_asked and transition.state in WAITING else transition.state
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
            reason=task.reason if state is not transition.state else transition.reason,
            run_at=now + transition.delay if state is State.SCHEDULED and transition.delay else task.run_at,
            worker=settlement.worker,
            started_at=started if over else None,
            finished_at=now if over else None,
            cancel_asked=False,
        )
        if state is State.PENDING:
            self.ring([task.queue])

    def _lose(self, task: Task, now: Moment) -> bool:
        """Take a task back from a dead session; True if it ends there, because somebody had asked to cancel it."""
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
            self.book.move(task, State.PENDING, outcome="lost", losses=task.losses + 1, session=None, started_at=None)
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
