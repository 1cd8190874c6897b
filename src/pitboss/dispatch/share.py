"""The workers of one pool as the dispatcher sees them: who has room, what waits, how much to claim ahead."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from pitboss.model.ids import TaskId
from pitboss.model.session import Slot
from pitboss.model.task import Claim

AHEAD_SECONDS = 0.1
MOST_AHEAD = 2000
STALE_SECONDS = 1.0
_MEASURE_SECONDS = 0.02


class Lane(Protocol):
    """One worker with room for `capacity` tasks at once."""

    name: str
    capacity: int

    def start(self, claim: Claim) -> None:
        """Run it now. What comes of it is told to `Dispatcher.finish`."""

    def stop(self, claim: Claim) -> None:
        """Somebody asked to cancel it: end it if possible."""


class Seat:
    """A lane and what runs in it. `reserved` is a task that must run there by itself."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.running: dict[TaskId, Claim] = {}
        self.reserved: Claim | None = None
        self.lonely = False
        self.closed = False

    @property
    def room(self) -> int:
        if self.closed or self.lonely or self.reserved is not None:
            return 0
        return self.lane.capacity - len(self.running)

    def start(self, claim: Claim) -> None:
        self.running[claim.id] = claim
        self.lonely = claim.alone
        self.lane.start(claim)

    def ended(self, claim: Claim) -> None:
        if self.running.pop(claim.id, None) is not None and not self.running:
            self.lonely = False


class Share:
    """Lanes of one pool over the same queues, with one buffer in front of them."""

    def __init__(self, pool: str, queues: tuple[str, ...] | None) -> None:
        self.pool, self.queues = pool, queues
        self.seats: dict[str, Seat] = {}
        self._buffer: deque[tuple[Claim, float]] = deque()
        self._alone: deque[Claim] = deque()
        self._rate = 0.0
        self._finished = 0
        self._measured_at: float | None = None

    def slot(self) -> Slot:
        """What to ask the store for now."""
        room = sum(seat.room for seat in self.seats.values())
        buffered = len(self._buffer)
        return Slot(
            pool=self.pool,
            queues=self.queues,
            free=max(0, room - buffered - len(self._alone)),
            ahead=max(0, self._target() - max(0, buffered - room)) if self.seats else 0,
        )

    def wants(self, slot: Slot) -> bool:
        """Whether asking is worth a call: room to start something, or a buffer that is half empty."""
        return slot.free > 0 or (slot.ahead > 0 and slot.ahead * 2 >= self._target())

    @property
    def hungry(self) -> bool:
        """A cheap guess at `wants`, for every finished task."""
        return len(self._buffer) * 2 <= self._target()

    def accept(self, claims: Iterable[Claim], now: float) -> None:
        for claim in claims:
            if claim.alone:
                self._alone.append(claim)
            else:
                self._buffer.append((claim, now))
        self.hand_out()

    def hand_out(self) -> None:
        """Start whatever can start."""
        self._seat_the_lonely()
        for seat in sorted(self.seats.values(), key=lambda seat: len(seat.running)):
            while self._buffer and seat.room > 0:
                seat.start(self._buffer.popleft()[0])

    def ended(self, seat: Seat, claim: Claim, now: float) -> None:
        """A task is no longer running there."""
        seat.ended(claim)
        self._finished += 1
        self._measure(now)
        if self._buffer and seat.room > 0 and not self._alone:
            seat.start(self._buffer.popleft()[0])
        else:
            self.hand_out()

    def waiting(self) -> list[Claim]:
        return [claim for claim, _ in self._buffer] + list(self._alone)

    def drop(self, claim: Claim) -> bool:
        """Take a claim that has not started out of the buffer."""
        before = len(self._buffer) + len(self._alone)
        self._buffer = deque(pair for pair in self._buffer if pair[0].id != claim.id)
        self._alone = deque(one for one in self._alone if one.id != claim.id)
        for seat in self.seats.values():
            if seat.reserved is not None and seat.reserved.id == claim.id:
                seat.reserved = None
                return True
        return len(self._buffer) + len(self._alone) < before

    def take_stale(self, now: float) -> list[Claim]:
        """What has waited too long to start; another manager may be free."""
        stale: list[Claim] = []
        while self._buffer and now - self._buffer[0][1] >= STALE_SECONDS:
            stale.append(self._buffer.popleft()[0])
        if stale:
            # The speed that they were claimed for is over; asking for as many again would be a carousel.
            self._rate = 0.0
        return stale

    def empty_buffer(self) -> list[Claim]:
        """Everything that has not started, taken out."""
        claims = self.waiting()
        for seat in self.seats.values():
            if seat.reserved is not None:
                claims.append(seat.reserved)
                seat.reserved = None
        self._buffer.clear()
        self._alone.clear()
        return claims

    def _seat_the_lonely(self) -> None:
        for seat in self.seats.values():
            if seat.reserved is not None and not seat.running:
                claim, seat.reserved = seat.reserved, None
                seat.start(claim)
        while self._alone:
            candidates = [
                seat for seat in self.seats.values() if not seat.closed and not seat.lonely and seat.reserved is None
            ]
            if not candidates:
                return
            seat = min(candidates, key=lambda seat: len(seat.running))
            claim = self._alone.popleft()
            if seat.running:
                seat.reserved = claim
            else:
                seat.start(claim)

    def _target(self) -> int:
        return min(MOST_AHEAD, math.floor(self._rate * AHEAD_SECONDS))

    def _measure(self, now: float) -> None:
        if self._measured_at is None:
            self._measured_at = now
        elapsed = now - self._measured_at
        if elapsed >= _MEASURE_SECONDS:
            fresh = self._finished / elapsed
            # A long pause says nothing about speed; it must not leave a large buffer to an idle queue either.
            self._rate = fresh if elapsed > 1 else (self._rate + fresh) / 2
            self._finished, self._measured_at = 0, now
