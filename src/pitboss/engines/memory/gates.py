"""What batches do to their items, and items to their batches: drawing, holding, ending, promoting."""

from collections.abc import Iterable
from itertools import islice

from pitboss.engines.memory.book import Book
from pitboss.engines.protocol import Clock, Failpoint
from pitboss.model.batch import Batch, BatchId, BatchStatus
from pitboss.model.batching import (
    HELD_BY_BATCH,
    PASSED_BY,
    Place,
    end_of_line,
    entered,
    promotable,
    requeued,
    status_with,
)
from pitboss.model.duration import Moment
from pitboss.model.states import FINISHED, State
from pitboss.model.task import NewTask, Task

_DRAWN = (State.PENDING, State.SCHEDULED)


class Gates:
    """The base of the engine: whoever changes items calls `close_batches` before the act is over."""

    def __init__(self, book: Book, clock: Clock, failpoint: Failpoint | None) -> None:
        self.book, self.clock = book, clock
        self._failpoint = failpoint

    def ring(self, queues: Iterable[str]) -> None:
        raise NotImplementedError

    def draw(self, queues: Iterable[str], wanted: int, now: Moment) -> bool:
        """Make items of running batches pending, as many as are missing; True if it should be asked again at once."""
        queues, more = sorted(queues), False
        drawn: list[State] = []
        for batch in self._running():
            counts = self.book.items[batch.id]
            there = [queue for queue in queues if queue in counts]
            scarce = any(counts[queue].get(State.HELD) and queue in self.book.bound for queue in there)
            enough = wanted + PASSED_BY if scarce else wanted
            missing = enough - sum(counts[queue].get(State.PENDING, 0) for queue in there)
            if missing > 0:
                found = self.book.shelves.undrawn(batch.id, queues, missing + 1)
                more = more or len(found) > missing
                drawn += [self._draw(self.book.tasks[task], now) for task in found[:missing]]
        return more and bool(drawn) and State.PENDING not in drawn

    def close_batches(self, now: Moment) -> None:
        """Bring each batch to the status that its items leave it, and whoever is next in line to its slot."""
        while self.book.touched:
            name = next(iter(self.book.touched))
            del self.book.touched[name]
            batch = self.book.batches.get(name)
            status = None if batch is None else status_with(batch.status, self.counts(batch.id))
            if batch is not None and status is not None and status is not batch.status:
                self.enter(batch, status, now)

    def enter(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        """Give the batch another status, with all that follows from that."""
        if status is batch.status:
            return
        changed, on_complete = entered(batch, status, now, reason)
        self.book.write_batch(changed)
        if status is BatchStatus.RUNNING:
            self.ring(self.book.items[batch.id])
        if on_complete is not None:
            self.place_and_ring(on_complete, now)
        if status is not BatchStatus.RUNNING:
            # Starting frees no slot.
            self.promote(batch.lane, now)

    def promote(self, lane: str, now: Moment) -> None:
        for batch in promotable(self.line(lane), self.book.lanes[lane]):
            self.enter(self.book.batches[batch], BatchStatus.RUNNING, now)

    def back_in_line(self, batch: Batch) -> Batch:
        """An ended batch has something to do again. Promoting is left to who is done with its items."""
        return self.book.write_batch(requeued(batch, end_of_line(self.line(batch.lane))))

    def line(self, lane: str) -> list[Place]:
        return [Place(batch.rank, batch.id, batch.status) for batch in self.book.lines[lane].values()]

    def counts(self, batch: BatchId) -> dict[State, int]:
        counted: dict[State, int] = {}
        for counts in self.book.items[batch].values():
            for state, count in counts.items():
                counted[state] = counted.get(state, 0) + count
        return counted

    def items(self, batch: BatchId) -> list[Task]:
        return [self.book.tasks[task] for task in self.book.shelves.items(batch)]

    def hold_drawn(self, batch: BatchId) -> int:
        """Nothing more of it starts."""
        drawn = [task for task in self.items(batch) if task.state in _DRAWN]
        for task in drawn:
            self.book.move(task, HELD_BY_BATCH.state, reason=HELD_BY_BATCH.reason)
        return len(drawn)

    def cancel_items(self, batch: Batch, limit: int, now: Moment) -> tuple[int, bool]:
        """Cancel what waits and ask what runs to stop: how many, and whether more are left."""
        open_items = (task for task in self.items(batch.id) if task.state not in FINISHED and not task.cancel_asked)
        found = list(islice(open_items, limit + 1))
        for task in found[:limit]:
            self.call_off(task, batch.reason or "cancelled", now)
        return len(found[:limit]), len(found) > limit

    def call_off(self, task: Task, reason: str, now: Moment) -> None:
        if task.state is State.RUNNING:
            self.book.move(task, State.RUNNING, cancel_asked=True, reason=reason)
        else:
            self.book.move(task, State.CANCELLED, reason=reason, finished_at=now)

    def place_and_ring(self, new: NewTask, now: Moment) -> None:
        placed = self.book.place(new, now)
        if placed.created and placed.state is State.PENDING:
            self.ring([new.queue])

    def _reach(self, name: str) -> None:
        if self._failpoint is not None:
            self._failpoint(name)

    def _running(self) -> list[Batch]:
        live = (batch for line in self.book.lines.values() for batch in line.values())
        return [batch for batch in live if batch.status is BatchStatus.RUNNING]

    def _draw(self, task: Task, now: Moment) -> State:
        place = self.book.waits(task, task.run_at, now)
        return self.book.move(task, place.state, reason=place.reason).state
