"""Claiming: which tasks a session gets, and which members with them."""

from collections.abc import Iterable, Iterator
from itertools import islice

from pitboss.engines.memory.partitions import Reach
from pitboss.engines.memory.verbs import Verbs
from pitboss.model.batching import HELD_FOR_HANDLER
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.lifecycle import cancelled, claim_on, claimed, is_expired, moved, still_claimed
from pitboss.model.limits import allowed, opens_at, with_start
from pitboss.model.picking import ANY, leased
from pitboss.model.resource import Leased, Shortage
from pitboss.model.session import ORDERED, Claimed, ClaimRequest, Slot
from pitboss.model.states import State
from pitboss.model.task import Claim, Task


class _Progress:
    """One call of `claim`: the request, the moment, and which queues and wants need no second look."""

    def __init__(self, request: ClaimRequest, now: Moment) -> None:
        self.request, self.now = request, now
        self.short_pools: set[str] = set()
        self.dry_queues: set[str] = set()
        # Ready members only become fewer during a claim: a want that no member fitted needs no second look.
        self.unmet: set[object] = set()
        # Pool -> the floor of turns, as it was before the first grant.
        self.floors: dict[str, int] = {}


class ClaimVerb(Verbs):
    """The verb `claim`."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._reach("claim.before")
        now = self.look()
        if not self._alive(request.session, now):
            raise SessionLost(request.session)
        names = {name for slot in request.slots for name in self._open_queues(slot)}
        self._fall_due(names, now)
        divided = {name for name in names if self.tables.queues[name].partitions is not None}
        wanted = sum(slot.free + slot.ahead for slot in request.slots)
        again = self.batch_lifecycle.draw(names - divided, wanted, now)
        claims: list[Claim] = []
        progress = _Progress(request, now)
        for index, slot in enumerate(request.slots):
            again = self._draw_for(slot, divided, progress) or again
            claims += self._fill(slot, index, progress)
        self.batch_lifecycle.update_batches(now)
        shortages = tuple(self.tables.pool(pool, now).shortage() for pool in sorted(progress.short_pools))
        next_due = now if again else self._next_due(names, shortages, now)
        self._reach("claim.after")
        return Claimed(claims, next_due, shortages, partitioned=bool(divided))

    def _open_queues(self, slot: Slot) -> list[str]:
        names = list(self.tables.queues.keys() - self.tables.remote) if slot.queues is None else slot.queues
        return [name for name in names if name in self.tables.queues and not self.tables.queues[name].paused]

    def _fall_due(self, names: Iterable[str], now: Moment) -> None:
        for name in names:
            for task in self.tables.indexes.due(name, now):
                self.tables.move(self.tables.tasks[task], State.PENDING)

    def _fill(self, slot: Slot, index: int, progress: _Progress) -> list[Claim]:
        claims = self._given_again(slot, index, progress.now)
        if claims:
            return claims
        handlers, now = progress.request.handlers, progress.now
        divided = any(self.tables.queues[name].partitions is not None for name in self._open_queues(slot))
        reach = Reach(self.tables, slot, progress.request.session, now) if divided else None
        for task in self._pending(slot, closed := {*progress.dry_queues}, reach):
            if len(claims) >= slot.free + slot.ahead:
                break
            ahead = len(claims) >= slot.free
            if reach is not None and not self._in_reach(task, reach, ahead=ahead):
                continue
            if is_expired(task, now):
                self.follow_failure(self.tables.write(cancelled(task, "expired", now)), now)
            elif slot.handlers is not None and task.handler not in slot.handlers:
                continue
            elif handlers is not None and task.handler not in handlers:
                self._pass_by(task, now)
            elif task.queue in self.tables.bound and (ahead or task.queue in progress.dry_queues):
                closed.add(task.queue)
            elif self._may_take(task, now, ahead=ahead):
                claims += self._take_with_resource(task, index, progress)
        return claims

    def _given_again(self, slot: Slot, index: int, now: Moment) -> list[Claim]:
        """The claims under the slot's key that still run: their answer was lost."""
        if slot.repeat is None:
            return []
        running = self.tables.in_state(State.RUNNING)
        again = [task for task in running if still_claimed(task, slot.repeat, now)]
        return [claim_on(task, task.session or 0, index) for task in sorted(again, key=lambda task: task.id)]

    def _pending(self, slot: Slot, closed: set[str], reach: Reach | None) -> Iterator[Task]:
        names = self._open_queues(slot)
        if reach is not None and slot.order is None:
            return (task for task in reach.in_order(sorted(set(names))) if task.queue not in closed)
        tasks = self.tables.pending(names, closed)
        if slot.order is None:
            return tasks
        wanted = (
            task
            for task in tasks
            if (slot.handlers is None or task.handler in slot.handlers) and (reach is None or reach.in_reach(task))
        )
        return iter(slot.order.apply(islice(wanted, ORDERED)))

    def _in_reach(self, task: Task, reach: Reach, *, ahead: bool) -> bool:
        if self.tables.queues[task.queue].partitions is None:
            return True
        return not ahead and not reach.is_full(task)

    def _draw_for(self, slot: Slot, divided: set[str], progress: _Progress) -> bool:
        """Draw items in queues with partitions that this slot may take; True if the caller should claim again."""
        queues = [name for name in sorted(set(self._open_queues(slot))) if name in divided]
        if not queues or not slot.free:
            return False
        reach = Reach(self.tables, slot, progress.request.session, progress.now)
        return self.batch_lifecycle.draw_for(queues, slot.free, reach.in_reach, reach.owns, progress.now)

    def _take_with_resource(self, task: Task, index: int, progress: _Progress) -> list[Claim]:
        """The task together with the member that it needs; nothing if no member fits."""
        now = progress.now
        pool = self.tables.bound.get(task.queue)
        if pool is None:
            return [self._take(task, progress, index)]
        members, want = self.tables.pool(pool, now), task.want or ANY
        floor = progress.floors.setdefault(pool, members.turn_floor())
        sought = (pool, want, members.avoided(want, task.tried, now))
        member = None if sought in progress.unmet else members.choose(want, task.tried, now)
        if member is not None:
            given = leased(members.grant(member, want, now, floor), members.rules, now)
            return [self._take(task, progress, index, given)]
        progress.unmet.add(sought)
        progress.short_pools.add(pool)
        progress.dry_queues |= set() if members.ready else {task.queue}
        return []

    def _pass_by(self, task: Task, now: Moment) -> None:
        if task.handler not in self._known_alive(now):
            self.tables.write(moved(task, HELD_FOR_HANDLER))

    def _may_take(self, task: Task, now: Moment, *, ahead: bool) -> bool:
        rate = self.tables.queues[task.queue].rate
        if ahead and (rate or task.losses):
            return False
        return allowed(rate, self.tables.starts[task.queue], now) != 0

    def _take(self, task: Task, progress: _Progress, index: int, given: Leased | None = None) -> Claim:
        session, now, slot = progress.request.session, progress.now, progress.request.slots[index]
        rate = self.tables.queues[task.queue].rate
        if rate:
            self.tables.starts[task.queue] = with_start(rate, self.tables.starts[task.queue], now)
        task = self.tables.write(claimed(task, session, now, slot, given))
        return claim_on(task, session, index, given)

    def _next_due(self, names: Iterable[str], shortages: Iterable[Shortage], now: Moment) -> Moment | None:
        moments = [short.until for short in shortages]
        for name in names:
            moments.append(self.tables.indexes.next_due(name))
            rate = self.tables.queues[name].rate
            if rate and self.tables.indexes.has_pending(name):
                moments.append(opens_at(rate, self.tables.starts[name]))
        return min((moment for moment in moments if moment is not None and moment > now), default=None)
