"""The workers of one pool as the dispatcher sees them: who has room, what waits, how much to claim ahead."""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from pitboss.model.ids import TaskId
from pitboss.model.session import Slot
from pitboss.model.task import Claim

AHEAD_SECONDS = 0.1
MOST_AHEAD = 2000
STALE_SECONDS = 1.0
SPARE_SECONDS = 0.02
MOST_SPARE = 200
_MEASURE_SECONDS = 0.02
# Where nothing was to be had ahead (no task waits, or those that do need a resource), it is asked for less and less.
_VAIN_SECONDS = 0.01
_MOST_VAIN_SECONDS = 2.0
_SHORTEST_WAIT = 0.001


class Meter:
    """Events per second, measured over short stretches."""

    def __init__(self, now: float) -> None:
        self.rate = 0.0
        self._since = now
        self._events = 0

    def count(self, now: float) -> float:
        """One more event; the rate with it."""
        self._events += 1
        elapsed = now - self._since
        if elapsed >= _MEASURE_SECONDS:
            fresh = self._events / elapsed
            # A long pause says nothing about speed, and the speed before it nothing about now.
            self.rate = fresh if elapsed > 1 else (self.rate + fresh) / 2
            self._since, self._events = now, 0
        return self.rate


class Worker(Protocol):
    """One worker with room for `capacity` tasks at once. Its `name` may pass to a successor, its `id` never does."""

    id: str
    name: str
    capacity: int

    def start(self, claim: Claim) -> None:
        """Run it now. What comes of it is told to `Dispatcher.finish`."""

    def stop(self, claim: Claim) -> None:
        """Somebody asked to cancel it: end it if possible."""

    def recall(self) -> None:
        """Give back, as released, what was handed over beyond the capacity and has not started."""


class WorkerSlots:
    """A worker and what it was given, in that order. `reserved` is a task that must run there by itself.

    A worker that ends tasks faster than they travel gets a few more than it can run at once (`spare`), so that it need
    not wait for the next. It starts them in the order given, so the first `capacity` ones are those that run.
    """

    def __init__(self, worker: Worker, now: float) -> None:
        self.worker = worker
        self.running: dict[TaskId, Claim] = {}
        self.reserved: Claim | None = None
        self.lonely = False
        self.closed = False
        # How many tasks it still rests from: each has its own time.
        self.resting = 0
        self.spare = 0
        self.ended_at = now
        self._meter = Meter(now)

    @property
    def room(self) -> int:
        """How many more could start at once."""
        return max(0, self.worker.capacity - len(self.running)) if self.open else 0

    @property
    def window(self) -> int:
        """How many more may be handed over."""
        return self.worker.capacity + self.spare - len(self.running) if self.open else 0

    @property
    def open(self) -> bool:
        """Whether it takes tasks at all."""
        return not (self.closed or self.lonely or self.resting or self.reserved is not None)

    @property
    def started(self) -> list[Claim]:
        return list(self.running.values())[: self.worker.capacity]

    def stalled(self, now: float) -> bool:
        """Something waits in the worker behind tasks that do not end."""
        return len(self.running) > self.worker.capacity and now - self.ended_at >= STALE_SECONDS

    def start(self, claim: Claim) -> None:
        self.running[claim.id] = claim
        self.lonely = claim.alone
        self.worker.start(claim)

    def ended(self, claim: Claim, now: float) -> None:
        if self.running.pop(claim.id, None) is not None and not self.running:
            self.lonely = False
        self.ended_at = now
        self.spare = min(MOST_SPARE, int(self._meter.count(now) * SPARE_SECONDS))


class WorkerGroup:
    """Workers of one pool over the same queues, with one buffer in front of them.

    With `rest` a worker takes no task for that many seconds after each task, and nothing is claimed ahead for it.
    """

    def __init__(self, pool: str, queues: tuple[str, ...] | None, *, rest: Callable[[], float] | None = None) -> None:
        self.pool, self.queues, self.rest = pool, queues, rest
        self.paused = False
        # Whether a task may start now, beside those that run on this host; None if nothing speaks against any.
        self.admits: Callable[[Claim], bool] | None = None
        self.workers: dict[str, WorkerSlots] = {}
        self._buffer: deque[tuple[Claim, float]] = deque()
        self._alone: deque[Claim] = deque()
        self._meter = Meter(0.0)
        self._vain, self.ahead_from = 0.0, 0.0
        # It had room for more when members of pools ran out: more room changes nothing, one that comes back rings.
        self.starved = False

    def slot(self) -> Slot:
        """What to ask the store for now."""
        room = sum(slots.room for slots in self.workers.values())
        buffered = len(self._buffer)
        return Slot(
            pool=self.pool,
            queues=self.queues,
            free=max(0, room - buffered - len(self._alone)),
            ahead=max(0, self._target() - max(0, buffered - room)) if self.workers else 0,
        )

    def wants(self, slot: Slot, now: float) -> bool:
        """Whether asking is worth a call: room to start something, or a buffer that is half empty and may be filled."""
        return not self.paused and (slot.free > 0 or (self._low(slot) and now >= self.ahead_from))

    def waits(self, slot: Slot, now: float) -> float:
        """How many seconds it will want nothing of itself, if that is only because it asked in vain; else infinite."""
        # A wait that is too short for the clock to move would be waited again and again.
        return max(_SHORTEST_WAIT, self.ahead_from - now) if self._low(slot) and not self.paused else inf

    def _low(self, slot: Slot) -> bool:
        return slot.ahead > 0 and slot.ahead * 2 >= self._target()

    def answered(self, slot: Slot, got: int, now: float, *, short: bool = False) -> None:
        """So many were to be had for what it asked for. `short`: there are tasks for which a pool had no member."""
        self.starved = short and got < slot.free
        if got > slot.free or not slot.ahead:
            self._vain = 0.0
        else:
            self._vain = min(_MOST_VAIN_SECONDS, max(_VAIN_SECONDS, 2 * self._vain))
        self.ahead_from = now + self._vain

    @property
    def hungry(self) -> bool:
        """A cheap guess at `wants`, for every finished task."""
        return not self.starved and len(self._buffer) * 2 <= self._target()

    def accept(self, claims: Iterable[Claim], now: float) -> list[Claim]:
        """Take claims in. Those that hold a resource start at once; the ones that cannot are handed back."""
        holding = []
        for claim in claims:
            if claim.alone:
                self._alone.append(claim)
            elif claim.leased is not None:
                holding.append(claim)
            else:
                self._buffer.append((claim, now))
        self.hand_out()
        return [claim for claim in holding if not self._started(claim)]

    def _started(self, claim: Claim) -> bool:
        """Started, where the fewest run. What waits with a resource in its hand keeps it from everybody else."""
        slots = max(self.workers.values(), key=lambda slots: (slots.room, -len(slots.running)), default=None)
        if slots is None or not slots.room or (self.admits is not None and not self.admits(claim)):
            return False
        slots.start(claim)
        return True

    def hand_out(self) -> None:
        """Start whatever can start."""
        self._seat_the_lonely()
        for slots in sorted(self.workers.values(), key=lambda slots: len(slots.running)):
            self._hand_to(slots, slots.room)
        for slots in self.workers.values():
            self._hand_to(slots, slots.window)

    def ended(self, slots: WorkerSlots, claim: Claim, now: float) -> None:
        """A task is no longer running there."""
        slots.ended(claim, now)
        if self.rest is not None:
            slots.resting, slots.spare = slots.resting + 1, 0
            return
        self._meter.count(now)
        if self._alone or slots.reserved is not None or (not slots.running and self._reserved()):
            self.hand_out()
        elif self._buffer and slots.window > 0:
            self._hand_to(slots, 1 if self.admits is None else slots.window)

    def _hand_to(self, slots: WorkerSlots, count: int) -> None:
        for _ in range(min(count, len(self._buffer))):
            claim = self._buffer.popleft()[0] if self.admits is None else self._first_admitted()
            if claim is None:
                return
            slots.start(claim)

    def _first_admitted(self) -> Claim | None:
        """Those that must wait for room are passed by, for a second at most: then they go back to the store."""
        assert self.admits is not None
        for index, (claim, _) in enumerate(self._buffer):
            if self.admits(claim):
                del self._buffer[index]
                return claim
        return None

    def waiting(self) -> list[Claim]:
        return [claim for claim, _ in self._buffer] + list(self._alone)

    def drop(self, claim: Claim) -> bool:
        """Take a claim that has not started out of the buffer."""
        before = len(self._buffer) + len(self._alone)
        self._buffer = deque(pair for pair in self._buffer if pair[0].id != claim.id)
        self._alone = deque(one for one in self._alone if one.id != claim.id)
        for slots in self.workers.values():
            if slots.reserved is not None and slots.reserved.id == claim.id:
                slots.reserved = None
                return True
        return len(self._buffer) + len(self._alone) < before

    def take_stale(self, now: float) -> list[Claim]:
        """What has waited too long to start; another manager may be free."""
        stale: list[Claim] = []
        while self._buffer and now - self._buffer[0][1] >= STALE_SECONDS:
            stale.append(self._buffer.popleft()[0])
        if stale:
            # The speed that they were claimed for is over; asking for as many again would be a carousel.
            self._meter = Meter(now)
        if self._alone and all(slots.closed for slots in self.workers.values()):
            # Nobody is left here who could take them.
            stale += self._alone
            self._alone.clear()
        return stale

    def empty_buffer(self) -> list[Claim]:
        """Everything that has not started, taken out."""
        claims = self.waiting()
        for slots in self.workers.values():
            if slots.reserved is not None:
                claims.append(slots.reserved)
                slots.reserved = None
        self._buffer.clear()
        self._alone.clear()
        return claims

    def _seat_the_lonely(self) -> None:
        for slots in self._reserved():
            free = slots if not slots.running and not slots.resting else self._idle()
            if free is not None and slots.reserved is not None:
                # Also elsewhere: a worker that has just come, or become free, need not wait for another's long task.
                claim, slots.reserved = slots.reserved, None
                free.start(claim)
        while self._alone:
            candidates = [slots for slots in self.workers.values() if slots.open]
            if not candidates:
                return
            slots = min(candidates, key=lambda slots: len(slots.running))
            claim = self._alone.popleft()
            if slots.running:
                slots.reserved = claim
            else:
                slots.start(claim)

    def _reserved(self) -> list[WorkerSlots]:
        return [slots for slots in self.workers.values() if slots.reserved is not None]

    def _idle(self) -> WorkerSlots | None:
        return next((slots for slots in self.workers.values() if slots.open and not slots.running), None)

    def _target(self) -> int:
        return min(MOST_AHEAD, int(self._meter.rate * AHEAD_SECONDS))
