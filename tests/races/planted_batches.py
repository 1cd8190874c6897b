"""Engines that are wrong about batches."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pitboss.model.batch import OVER, Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Cancel, NewBatch
from pitboss.model.duration import Moment
from pitboss.model.session import Reclaimed
from pitboss.model.states import State
from pitboss.model.task import NewTask, Task
from tests.races.planted import Planted

_COUNTS, _LANES, _ENDS, _STOPPED = "recount of its items", "than it may", "a batch ends once", "that is paused"


class PlantedBatch(Planted):
    """A bug in the batches."""


class PromotesOneMore(PlantedBatch):
    """Counts those that run, and is off by one."""

    breaks = _LANES

    def promote(self, lane: str, now: Moment) -> None:
        most = self.book.lanes[lane]
        self.book.lanes[lane] = most + 1
        try:
            super().promote(lane, now)
        finally:
            self.book.lanes[lane] = most


class PromotesTwice(PlantedBatch):
    """The end of a batch promotes the next, and the sweep promotes for the same end again."""

    breaks = _LANES
    _owed = 0

    def enter(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        self._owed += status in OVER and batch.status is BatchStatus.RUNNING
        super().enter(batch, status, now, reason)

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        for lane, most in list(self.book.lanes.items()):
            self.book.lanes[lane] = most + bool(self._owed)
            self.promote(lane, self.clock.now())
            self.book.lanes[lane] = most
        self._owed = 0
        return await super().reclaim(limit)


class NeverEnds(PlantedBatch):
    """The last item that is cancelled ends nothing."""

    breaks = _ENDS

    async def cancel(self, wanted: Any, **options: Any) -> Any:
        touched = dict(self.book.touched)
        changed = await super().cancel(wanted, **options)
        for batch in self.book.batches.values():
            if batch.status in OVER and batch.finished_at == self.clock.now():
                self.book.write_batch(replace(batch, status=BatchStatus.PAUSED, finished_at=None))
        self.book.touched = touched
        return changed


class EndsAgain(PlantedBatch):
    """Every sweep ends what has ended once more."""

    breaks = _ENDS

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        for batch in list(self.book.batches.values()):
            if batch.status in OVER:
                self.book.write_batch(replace(batch, finished_at=self.clock.now()))
        return await super().reclaim(limit)


class NoticeForgotten(PlantedBatch):
    """A batch that is cancelled ends without a word."""

    breaks = _ENDS

    def enter(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        if status is BatchStatus.CANCELLED:
            batch = replace(batch, on_complete=None)
        super().enter(batch, status, now, reason)


class NoticeTooEarly(PlantedBatch):
    """A batch that starts says that it has ended."""

    breaks = f"{_ENDS}|nothing appears unasked"

    def enter(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        if status is BatchStatus.RUNNING and batch.on_complete is not None:
            self.place_and_ring(replace(batch.on_complete, id=batch.on_complete.id[:-1] + "0"), now)
        super().enter(batch, status, now, reason)


class CountsDrift(PlantedBatch):
    """Items that end with their batch's cancellation are not counted."""

    breaks = _COUNTS

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        changed = await super().act_on_batch(batch, act, limit=limit)
        if isinstance(act, Cancel) and changed.changed:
            for counts in self.book.items[batch].values():
                counts.pop(State.CANCELLED, None)
        return changed


class ItemDropped(PlantedBatch):
    """The last item of a batch is lost on the way."""

    breaks = _COUNTS

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        return await super().create_batch(batch, items[: max(1, len(items) - 1)])


class PauseLeavesTheDrawn(PlantedBatch):
    """What was drawn before the pause starts all the same."""

    breaks = _STOPPED

    def hold_drawn(self, batch: BatchId) -> int:
        return 0


class PausedButDrawn(PlantedBatch):
    """A claim draws from whatever is not over."""

    breaks = _STOPPED

    def _running(self) -> list[Batch]:
        return [batch for batch in self.book.batches.values() if batch.status not in OVER]

    def _draw(self, task: Task, now: Moment) -> State:
        return self.book.move(task, State.PENDING, reason=None).state


BATCH_BUGS: list[type[Planted]] = [*PlantedBatch.__subclasses__()]
