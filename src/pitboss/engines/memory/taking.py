"""Claiming: which tasks a session is given, and which members with them."""

from collections.abc import Iterable

from pitboss.engines.memory.pools import Pools
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.limits import allowed, horizon, opens_at
from pitboss.model.picking import ANY, leased
from pitboss.model.resource import Leased, Shortage
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.states import State
from pitboss.model.task import Claim, Task, Token


class _Round:
    """One claim on its way: what was asked, when, and which queues and wants need not be looked at again."""

    def __init__(self, request: ClaimRequest, now: Moment) -> None:
        self.request, self.now = request, now
        self.short: set[str] = set()
        self.dry: set[str] = set()
        # Ready members only become fewer during a claim, so what fitted nobody fits nobody later.
        self.in_vain: set[object] = set()


class Taking(Pools):
    """The verb `claim`."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._reach("claim.before")
        now = self.clock.now()
        if not self._alive(request.session, now):
            raise SessionLost(request.session)
        names = {name for slot in request.slots for name in self._open_queues(slot)}
        self._fall_due(names, now)
        again = self.draw(names, sum(slot.free + slot.ahead for slot in request.slots), now)
        claims: list[Claim] = []
        this = _Round(request, now)
        for index, slot in enumerate(request.slots):
            claims += self._fill(slot, index, this)
        self.close_batches(now)
        shortages = tuple(self._shortage(pool) for pool in sorted(this.short))
        next_due = now if again else self._next_due(names, shortages, now)
        self._reach("claim.after")
        return Claimed(claims, next_due, shortages)

    def _open_queues(self, slot: Slot) -> list[str]:
        names = list(self.book.queues) if slot.queues is None else slot.queues
        return [name for name in names if name in self.book.queues and not self.book.queues[name].paused]

    def _fall_due(self, names: Iterable[str], now: Moment) -> None:
        for name in names:
            for task in self.book.shelves.due(name, now):
                self.book.move(self.book.tasks[task], State.PENDING)

    def _fill(self, slot: Slot, index: int, this: _Round) -> list[Claim]:
        claims: list[Claim] = []
        handlers, now = this.request.handlers, this.now
        for task in self.book.pending(self._open_queues(slot), closed := {*this.dry}):
            if len(claims) >= slot.free + slot.ahead:
                break
            ahead = len(claims) >= slot.free
            if task.expires_at is not None and task.expires_at <= now:
                self.book.move(task, State.CANCELLED, reason="expired", finished_at=now)
            elif handlers is not None and task.handler not in handlers:
                self._pass_by(task, now)
            elif task.queue in self.book.bound and (ahead or task.queue in this.dry):
                closed.add(task.queue)
            elif self._may_take(task, now, ahead=ahead):
                claims += self._take_with_resource(task, index, this)
        return claims

    def _take_with_resource(self, task: Task, index: int, this: _Round) -> list[Claim]:
        """The task, and in the same act the member that it needs; nothing if there is none for it."""
        pool = self.book.bound.get(task.queue)
        if pool is None:
            return [self._take(task, this.request.session, index, this.now)]
        members, want = self.pool(pool), task.want or ANY
        sought = (pool, want, members.avoided(want, task.tried))
        member = None if sought in this.in_vain else members.choose(want, task.tried, this.now)
        if member is not None:
            given = leased(members.grant(member, want, this.now), members.rules, this.now)
            return [self._take(task, this.request.session, index, this.now, given)]
        this.in_vain.add(sought)
        this.short.add(pool)
        this.dry |= set() if members.ready else {task.queue}
        return []

    def _pass_by(self, task: Task, now: Moment) -> None:
        if task.handler not in self._known_alive(now):
            self.book.move(task, State.HELD, reason="handler")

    def _may_take(self, task: Task, now: Moment, *, ahead: bool) -> bool:
        rate = self.book.queues[task.queue].rate
        if ahead and (rate or task.losses):
            return False
        return allowed(rate, self.book.starts[task.queue], now) != 0

    def _take(self, task: Task, session: int, index: int, now: Moment, given: Leased | None = None) -> Claim:
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
            resource=None if given is None else given.id,
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
            leased=given,
            batch=task.batch,
            rotations=task.rotations,
        )

    def _shortage(self, pool: str) -> Shortage:
        return self.pool(pool).shortage()

    def _next_due(self, names: Iterable[str], shortages: Iterable[Shortage], now: Moment) -> Moment | None:
        moments = [short.until for short in shortages]
        for name in names:
            moments.append(self.book.shelves.next_due(name))
            rate = self.book.queues[name].rate
            if rate and self.book.has_pending(name):
                moments.append(opens_at(rate, self.book.starts[name]))
        return min((moment for moment in moments if moment is not None and moment > now), default=None)
