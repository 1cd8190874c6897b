"""The workers of one pool as the dispatcher sees them: which have room, what waits, how much to claim ahead."""

from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from pitboss.dispatch.measuring import Measurements
from pitboss.model.ids import TaskId
from pitboss.model.session import Slot
from pitboss.model.task import Claim, Token

AHEAD_SECONDS = 0.1
MOST_AHEAD = 2000
STALE_SECONDS = 1.0
SPARE_SECONDS = 0.02
MOST_SPARE = 200
_MEASURE_SECONDS = 0.02
# If claiming ahead got nothing (no task waits, or those that do need a resource), pause, each time twice as long.
_EMPTY_SECONDS = 0.01
_MOST_EMPTY_SECONDS = 2.0
_SHORTEST_WAIT = 0.001
# A task that was lost runs alone for so long, and waits as long for a worker to be empty; four times as long after each
# further loss.
_ALONE_SECONDS = 3.0
_MOST_ALONE_SECONDS = 86_400.0
# A worker sends a heartbeat every second. One that is later may be blocked: other tasks are not let into it.
_PROMPT_SECONDS = 2.0


class Meter:
    """Tasks per second, measured over short periods."""

    def __init__(self, now: float) -> None:
        self.rate = 0.0
        self._since = now
        self._count = 0

    def count(self, now: float) -> float:
        """Count one more; returns the new rate."""
        self._count += 1
        elapsed = now - self._since
        if elapsed >= _MEASURE_SECONDS:
            fresh = self._count / elapsed
            # After a long pause the old rate says nothing about the present one.
            self.rate = fresh if elapsed > 1 else (self.rate + fresh) / 2
            self._since, self._count = now, 0
        return self.rate


class Worker(Protocol):
    """One worker with room for `capacity` tasks at once. Its `name` may pass to a successor, its `id` never does."""

    id: str
    name: str
    capacity: int

    @property
    def silence(self) -> float:
        """For how many seconds it has said nothing."""

    def start(self, claim: Claim) -> None:
        """Run it now. Its outcome goes to `Dispatcher.finish`."""

    def stop(self, claim: Claim) -> None:
        """Cancel it if possible."""

    def recall(self) -> None:
        """Give back, as released, the tasks that have not started."""


class WorkerLoad:
    """A worker and the tasks it was given, in order. `reserved` is a task that must run there alone.

    A worker that ends tasks faster than they travel gets a few more than it can run at once (`spare`), so that it never
    waits for the next one. It starts them in the given order: the first `capacity` of them run. `place` is its number
    among the workers of its pool.
    """

    def __init__(self, group: "WorkerGroup", worker: Worker, now: float, place: int) -> None:
        self.group, self.worker, self.place = group, worker, place
        self.running: dict[TaskId, Claim] = {}
        self.reserved: Claim | None = None
        self.runs_alone = False
        # The task for which others are kept out, and since when.
        self._kept_for: tuple[Claim, float] | None = None
        self.closed = False
        # How many pauses after tasks it still observes, and their timers: each has its own time.
        self.resting = 0
        self.rests: list[TimerHandle] = []
        self.spare = 0
        self.ended_at = now
        self._meter = Meter(now)

    @property
    def room(self) -> int:
        """How many more tasks could start now."""
        return max(0, self.worker.capacity - len(self.running)) if self.open else 0

    @property
    def window(self) -> int:
        """How many more tasks may be handed over."""
        return self.worker.capacity + self.spare - len(self.running) if self.open else 0

    @property
    def open(self) -> bool:
        """Whether it takes tasks at all."""
        return not (self.closed or self.runs_alone or self.resting or self.reserved is not None)

    @property
    def started(self) -> list[Claim]:
        return list(self.running.values())[: self.worker.capacity]

    def stalled(self, now: float) -> bool:
        """Whether a task waits in the worker while none of the running ones ends."""
        return len(self.running) > self.worker.capacity and now - self.ended_at >= STALE_SECONDS

    def start(self, claim: Claim) -> None:
        self.runs_alone = claim.alone and not self.running
        self._kept_for = None
        self.running[claim.id] = claim
        if self.group.measured is not None:
            self.group.measured.started(claim)
        self.worker.start(claim)

    def ease(self, now: float) -> bool:
        """Let others in, if they have been kept out for long enough; returns whether it did. A task that waits for the
        worker to be empty starts beside those that run."""
        claim = self.reserved or next(iter(self.running.values()), None)
        if claim is None or not (self.reserved or self.runs_alone):
            self._kept_for = None
            return False
        if self._kept_for is None or self._kept_for[0] is not claim:
            self._kept_for = claim, now
        if now - self._kept_for[1] < _alone_seconds(claim) or self.worker.silence > _PROMPT_SECONDS:
            return False
        if self.reserved is None:
            self.runs_alone = False
            return True
        if self.resting or self.closed or len(self.running) >= self.worker.capacity:
            return False
        self.reserved = None
        self.start(claim)
        return True

    def ended(self, claim: Claim, now: float) -> None:
        if self.running.pop(claim.id, None) is not None and not self.running:
            self.runs_alone = False
        self.ended_at = now
        self.spare = min(MOST_SPARE, int(self._meter.count(now) * SPARE_SECONDS))


class Ask(NamedTuple):
    """A slot of a claim. `load`: what is claimed must start on this worker; None: on any of the group."""

    group: "WorkerGroup"
    slot: Slot
    load: WorkerLoad | None = None


class WorkerGroup:
    """Workers of one pool over the same queues, with one buffer in front of them.

    With `rest` a worker takes no task for that many seconds after each task, and nothing is claimed ahead for it. While
    a queue of the group has partitions (`divided`), each worker asks for itself, and nothing waits in the buffer.
    """

    def __init__(self, pool: str, queues: tuple[str, ...] | None, *, rest: Callable[[], float] | None = None) -> None:
        self.pool, self.queues, self.rest = pool, queues, rest
        self.paused = False
        self.measured: Measurements | None = None
        # Whether the memory of this host lets a task start now; None if every task may.
        self.admits: Callable[[Claim], bool] | None = None
        self.workers: dict[str, WorkerLoad] = {}
        self._buffer: deque[tuple[Claim, float]] = deque()
        self._alone: deque[Claim] = deque()
        self._meter = Meter(0.0)
        self._pause, self.ahead_from = 0.0, 0.0
        # Limited by resources, not by workers: do not claim again before a member is released, which rings.
        self.starved = False
        self.divided = False

    def add(self, worker: Worker, now: float, place: int = 0) -> WorkerLoad:
        load = self.workers[worker.id] = WorkerLoad(self, worker, now, place)
        return load

    def set_rest(self, rest: Callable[[], float] | None, now: float) -> None:
        """From now on, pause that long after each task."""
        if rest is not None and self.rest is None:
            # It was fast until now: nothing is to be claimed ahead any more.
            self._meter = Meter(now)
            for load in self.workers.values():
                load.spare = 0
        self.rest = rest

    def slot(self, only: frozenset[str] | None = None) -> Slot:
        """What to ask the store for now. `only`: no other queues than these."""
        room = sum(load.room for load in self.workers.values())
        buffered = len(self._buffer)
        return Slot(
            pool=self.pool,
            queues=self.queues if only is None else tuple(sorted(only.intersection(self.queues or only))),
            free=max(0, room - buffered - len(self._alone)),
            ahead=max(0, self._target() - max(0, buffered - room)) if self.workers and not self.divided else 0,
        )

    def asks(self, slot: Slot, number: Callable[[WorkerLoad], int | None]) -> list[Ask]:
        """The slots of a claim: one for the group, or one for each worker with room, with its number."""
        if not self.divided:
            return [Ask(self, slot)]
        return [
            Ask(self, replace(slot, free=load.room, number=number(load), worker=load.worker.id), load)
            for load in self.workers.values()
            if load.room
        ]

    def wants(self, slot: Slot, now: float) -> bool:
        """Whether a claim is worth a call: a task could start, or the buffer is half empty and may be filled."""
        return not self.paused and (slot.free > 0 or (self._low(slot) and now >= self.ahead_from))

    def waits(self, slot: Slot, now: float) -> float:
        """How many seconds until it may claim ahead again; infinite if it does not want to."""
        # Long enough for the clock to move: otherwise the wait would be repeated again and again.
        return max(_SHORTEST_WAIT, self.ahead_from - now) if self._low(slot) and not self.paused else inf

    def _low(self, slot: Slot) -> bool:
        return slot.ahead > 0 and slot.ahead * 2 >= self._target()

    def answered(self, slot: Slot, got: int, now: float, *, short: bool = False) -> None:
        """The store answered with `got` tasks. `short`: tasks wait for which a resource pool had no member."""
        # A worker that is full may have tasks of its own keys waiting: their start depends on its room.
        full = self.divided and any(not load.closed and not load.room for load in self.workers.values())
        self.starved = short and got < slot.free and not full
        if got > slot.free or not slot.ahead:
            self._pause = 0.0
        else:
            self._pause = min(_MOST_EMPTY_SECONDS, max(_EMPTY_SECONDS, 2 * self._pause))
        self.ahead_from = now + self._pause

    @property
    def hungry(self) -> bool:
        """A cheap estimate of `wants`, made for every finished task."""
        return not self.starved and len(self._buffer) * 2 <= self._target()

    def accept(self, claims: Iterable[Claim], now: float, asked: float | None = None) -> list[Claim]:
        """Take claims, which were asked for at `asked`. Those that hold a resource start at once; returns the ones that
        cannot."""
        holding = []
        for claim in claims:
            if claim.leased is not None and asked is not None:
                claim = _dated(claim, asked)
            if claim.alone:
                self._alone.append(claim)
            elif claim.leased is not None:
                holding.append(claim)
            else:
                self._buffer.append((claim, now))
        self.hand_out()
        return [claim for claim in holding if not self._started(claim)]

    def accept_at(self, load: WorkerLoad, claims: Iterable[Claim], asked: float) -> list[Claim]:
        """Start claims on the worker that asked for them; returns those that cannot start there."""
        back = []
        for claim in claims:
            if claim.alone and load.open and load.running:
                load.reserved = claim
            elif load.room and (self.admits is None or self.admits(claim)):
                load.start(_dated(claim, asked))
            else:
                back.append(claim)
        return back

    def _started(self, claim: Claim) -> bool:
        """Start it on the least busy worker. It must not wait: a waiting task would block its resource for others."""
        load = max(self.workers.values(), key=lambda load: (load.room, -len(load.running)), default=None)
        if load is None or not load.room or (self.admits is not None and not self.admits(claim)):
            return False
        load.start(claim)
        return True

    def hand_out(self) -> None:
        """Start all tasks that can start."""
        self._place_alone()
        for load in sorted(self.workers.values(), key=lambda load: len(load.running)):
            self._hand_to(load, load.room)
        for load in self.workers.values():
            self._hand_to(load, load.window)

    def ended(self, load: WorkerLoad, claim: Claim, now: float) -> None:
        """A task has ended there."""
        load.ended(claim, now)
        if self.rest is not None:
            load.resting, load.spare = load.resting + 1, 0
            return
        self._meter.count(now)
        if self._alone or load.reserved is not None or (not load.running and self._reserved()):
            self.hand_out()
        elif self._buffer and load.window > 0:
            self._hand_to(load, 1 if self.admits is None else load.window)

    def _hand_to(self, load: WorkerLoad, count: int) -> None:
        for _ in range(min(count, len(self._buffer))):
            claim = self._buffer.popleft()[0] if self.admits is None else self._first_admitted()
            if claim is None:
                return
            load.start(claim)

    def _first_admitted(self) -> Claim | None:
        """The first task that fits into memory. Others wait for a second at most, then they go back to the store."""
        assert self.admits is not None
        for index, (claim, _) in enumerate(self._buffer):
            if self.admits(claim):
                del self._buffer[index]
                return claim
        return None

    def knows(self, task: TaskId, token: Token) -> bool:
        """Whether that claim waits, is reserved, or runs here."""
        reserved = [load.reserved for load in self.workers.values() if load.reserved is not None]
        running = [load.running[task] for load in self.workers.values() if task in load.running]
        return any(claim.id == task and claim.token == token for claim in (*self.waiting(), *reserved, *running))

    def waiting(self) -> list[Claim]:
        return [claim for claim, _ in self._buffer] + list(self._alone)

    def cancel(self, task: TaskId, token: Token) -> Claim | None:
        """Cancel a claim: returns it if it had not started; asks its worker to stop it if it runs."""
        for waiting in self.waiting():
            if waiting.id == task and waiting.token == token:
                self._buffer = deque(pair for pair in self._buffer if pair[0].id != task)
                self._alone = deque(one for one in self._alone if one.id != task)
                return waiting
        for load in self.workers.values():
            running = load.running.get(task)
            if running is not None and running.token == token:
                load.worker.stop(running)
        return None

    def take_stale(self, now: float) -> list[Claim]:
        """Remove what has waited too long to start: another manager may be free."""
        stale: list[Claim] = []
        while self._buffer and now - self._buffer[0][1] >= STALE_SECONDS:
            stale.append(self._buffer.popleft()[0])
        if stale:
            # Tasks do not end as fast as before: claiming as many again would bring them back again and again.
            self._meter = Meter(now)
        if self._alone and all(load.closed for load in self.workers.values()):
            # No worker is left here that could take them.
            stale += self._alone
            self._alone.clear()
        return stale

    def empty_buffer(self) -> list[Claim]:
        """Remove and return everything that has not started."""
        claims = self.waiting()
        for load in self.workers.values():
            if load.reserved is not None:
                claims.append(load.reserved)
                load.reserved = None
        self._buffer.clear()
        self._alone.clear()
        return claims

    def ease(self, now: float) -> bool:
        """Let others in where a lost task has kept them out for long enough; returns whether it did."""
        eased = [load for load in self.workers.values() if load.ease(now)]
        if eased:
            self.hand_out()
        return bool(eased)

    def _place_alone(self) -> None:
        for load in self._reserved():
            free = load if not load.running and not load.resting else None if self.divided else self._idle()
            if free is not None and load.reserved is not None:
                # An idle worker need not wait for the long task of the reserved one.
                claim, load.reserved = load.reserved, None
                free.start(claim)
        while self._alone:
            candidates = [load for load in self.workers.values() if load.open]
            if not candidates:
                return
            load = min(candidates, key=lambda load: len(load.running))
            claim = self._alone.popleft()
            if load.running:
                load.reserved = claim
            else:
                load.start(claim)

    def _reserved(self) -> list[WorkerLoad]:
        return [load for load in self.workers.values() if load.reserved is not None]

    def _idle(self) -> WorkerLoad | None:
        return next((load for load in self.workers.values() if load.open and not load.running), None)

    def _target(self) -> int:
        return min(MOST_AHEAD, int(self._meter.rate * AHEAD_SECONDS))


def _alone_seconds(claim: Claim) -> float:
    """For how long a lost task keeps others out of its worker."""
    return min(_MOST_ALONE_SECONDS, _ALONE_SECONDS * 4.0 ** min(claim.losses - 1, 10))


def _dated(claim: Claim, asked: float) -> Claim:
    """The claim with the moment at which its resource was asked for, if the age of the use matters."""
    leased = claim.leased
    if leased is None or not (leased.guard or leased.open_for):
        return claim
    return replace(claim, leased=replace(leased, asked=asked))
