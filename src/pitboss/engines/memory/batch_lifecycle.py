"""How batches and their items move each other: drawing, holding, ending, promoting. `model.batching` has the rules."""

from collections.abc import Callable, Iterable
from itertools import islice

from pitboss.engines.memory.tables import Tables
from pitboss.engines.scan import CANCELLABLE
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
from pitboss.model.lifecycle import cancelled, moved
from pitboss.model.states import State
from pitboss.model.task import Task

_DRAWN = (State.PENDING, State.SCHEDULED)


class BatchLifecycle:
    """A verb that changes tasks calls `update_batches` before it returns."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def draw(self, queues: Iterable[str], wanted: int, now: Moment) -> bool:
        """Draw items of running batches until `wanted` are pending. True if the caller should claim again at once."""
        queues, more = sorted(queues), False
        drawn: list[State] = []
        for batch in self._running():
            counts = self._tables.items[batch.id]
            there = [queue for queue in queues if queue in counts]
            scarce = any(counts[queue].get(State.HELD) and queue in self._tables.bound for queue in there)
            enough = wanted + PASSED_BY if scarce else wanted
            missing = enough - sum(counts[queue].get(State.PENDING, 0) for queue in there)
            if missing > 0:
                found = self._tables.indexes.undrawn(batch.id, queues, missing + 1)
                more = more or len(found) > missing
                drawn += [self._draw(self._tables.tasks[task], now) for task in found[:missing]]
        return more and bool(drawn) and State.PENDING not in drawn

    def draw_for(
        self,
        queues: Iterable[str],
        free: int,
        may_take: Callable[[Task], bool],
        first: Callable[[Task], bool],
        now: Moment,
    ) -> bool:
        """As `draw`, in queues with partitions for one slot: items that it may take, those that come `first` before."""
        more, drawn, tables = False, list[State](), self._tables
        for batch in self._running():
            for queue in (queue for queue in queues if queue in tables.items[batch.id]):
                scarce = queue in tables.bound and tables.items[batch.id][queue].get(State.HELD)
                there = [
                    task for task in tables.first_pending(queue, None) if task.batch == batch.id and may_take(task)
                ]
                missing = free + (PASSED_BY if scarce else 0) - len(there)
                held = [tables.tasks[task] for task in tables.indexes.undrawn(batch.id, [queue], len(tables.tasks))]
                found = sorted((task for task in held if may_take(task)), key=lambda task: not first(task))
                more = more or len(found) > max(0, missing)
                drawn += [self._draw(task, now) for task in found[: max(0, missing)]]
        return more and bool(drawn) and State.PENDING not in drawn

    def update_batches(self, now: Moment) -> None:
        """Give each batch whose items changed the status that follows from them, and promote the next ones."""
        touched = self._tables.touched
        while touched:
            name = next(iter(touched))
            del touched[name]
            batch = self._tables.batches.get(name)
            status = None if batch is None else status_with(batch.status, self.counts(batch.id))
            if batch is not None and status is not None and status is not batch.status:
                self.set_status(batch, status, now)

    def set_status(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        """Change the status, and do what follows: ring, put the `on_complete` task, promote the next batch."""
        if status is batch.status:
            return
        changed, on_complete = entered(batch, status, now, reason)
        self._tables.write_batch(changed)
        if status is BatchStatus.RUNNING:
            self._tables.doorbell.ring(self._tables.items[batch.id])
        if on_complete is not None:
            self._tables.place(on_complete, now)
        if status is not BatchStatus.RUNNING:
            # Starting a batch frees no slot; this also avoids recursion.
            self.promote(batch.lane, now)

    def promote(self, lane: str, now: Moment) -> None:
        for batch in promotable(self.line(lane), self._tables.lanes[lane]):
            self.set_status(self._tables.batches[batch], BatchStatus.RUNNING, now)

    def back_in_line(self, batch: Batch) -> Batch:
        """Queue an ended batch again. The caller promotes once it has changed the items."""
        return self._tables.write_batch(requeued(batch, end_of_line(self.line(batch.lane))))

    def line(self, lane: str) -> list[Place]:
        return [Place(batch.rank, batch.id, batch.status) for batch in self._tables.lines[lane].values()]

    def counts(self, batch: BatchId) -> dict[State, int]:
        counted: dict[State, int] = {}
        for counts in self._tables.items[batch].values():
            for state, count in counts.items():
                counted[state] = counted.get(state, 0) + count
        return counted

    def items(self, batch: BatchId) -> list[Task]:
        return [self._tables.tasks[task] for task in self._tables.indexes.items(batch)]

    def hold_drawn(self, batch: BatchId) -> int:
        """Hold the items that were drawn but do not run yet; how many."""
        drawn = [task for task in self.items(batch) if task.state in _DRAWN]
        for task in drawn:
            self._tables.write(moved(task, HELD_BY_BATCH))
        return len(drawn)

    def cancel_items(self, batch: Batch, limit: int, now: Moment) -> tuple[int, bool]:
        """Cancel waiting items and mark running ones; how many, and whether more are left."""
        left = (task for task in self.items(batch.id) if task.state in CANCELLABLE and not task.cancel_asked)
        found = list(islice(left, limit + 1))
        for task in found[:limit]:
            self._tables.write(cancelled(task, batch.reason or "cancelled", now))
        return len(found[:limit]), len(found) > limit

    def sweep(self, limit: int, now: Moment) -> tuple[int, bool]:
        """Continue cancellations and fill free slots, in case the act that should have done so was cut short."""
        count, more = 0, False
        for batch in [batch for line in self._tables.lines.values() for batch in line.values()]:
            if batch.status is BatchStatus.CANCELLING:
                changed, left = self.cancel_items(batch, limit - count, now)
                count, more = count + changed, more or left
        self.update_batches(now)
        for lane in self._tables.lanes:
            self.promote(lane, now)
        return count, more

    def _running(self) -> list[Batch]:
        live = (batch for line in self._tables.lines.values() for batch in line.values())
        return [batch for batch in live if batch.status is BatchStatus.RUNNING]

    def _draw(self, task: Task, now: Moment) -> State:
        return self._tables.write(moved(task, self._tables.waits(task, task.run_at, now))).state
