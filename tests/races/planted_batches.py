"""Engines that are wrong about batches."""

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from pitboss.engines.memory.batch_lifecycle import BatchLifecycle
from pitboss.model.batch import OVER, Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Cancel, NewBatch
from pitboss.model.duration import Moment
from pitboss.model.session import Reclaimed
from pitboss.model.states import State
from pitboss.model.task import NewTask, Task
from pitboss.testing.clock import FakeClock
from tests.races.planted import Planted

_COUNTS, _LANES, _ENDS, _STOPPED = "recount of its items", "than it may", "a batch ends once", "that is paused"


class PlantedBatch(Planted):
    """A bug in the batches. `lifecycle_type` is how batches and items move each other in this engine."""

    lifecycle_type: ClassVar[type[BatchLifecycle]] = BatchLifecycle

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.batch_lifecycle = self.lifecycle_type(self.tables)


class _OneMore(BatchLifecycle):
    def promote(self, lane: str, now: Moment) -> None:
        most = self._tables.lanes[lane]
        self._tables.lanes[lane] = most + 1
        try:
            super().promote(lane, now)
        finally:
            self._tables.lanes[lane] = most


class PromotesOneMore(PlantedBatch):
    """Counts those that run, and is off by one."""

    breaks = _LANES
    lifecycle_type = _OneMore


class _Twice(BatchLifecycle):
    _owed = 0

    def set_status(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        self._owed += status in OVER and batch.status is BatchStatus.RUNNING
        super().set_status(batch, status, now, reason)

    def sweep(self, limit: int, now: Moment) -> tuple[int, bool]:
        for lane, most in list(self._tables.lanes.items()):
            self._tables.lanes[lane] = most + bool(self._owed)
            self.promote(lane, now)
            self._tables.lanes[lane] = most
        self._owed = 0
        return super().sweep(limit, now)


class PromotesTwice(PlantedBatch):
    """The end of a batch promotes the next, and the sweep promotes for the same end again."""

    breaks = _LANES
    lifecycle_type = _Twice


class NeverEnds(PlantedBatch):
    """The last item that is cancelled ends nothing."""

    breaks = _ENDS

    async def cancel(self, wanted: Any, **options: Any) -> Any:
        touched = dict(self.tables.touched)
        changed = await super().cancel(wanted, **options)
        for batch in self.tables.batches.values():
            if batch.status in OVER and batch.finished_at == self.clock.now():
                self.tables.write_batch(replace(batch, status=BatchStatus.PAUSED, finished_at=None))
        self.tables.touched = touched
        return changed


class EndsAgain(PlantedBatch):
    """Every sweep ends what has ended once more."""

    breaks = _ENDS

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        for batch in list(self.tables.batches.values()):
            if batch.status in OVER:
                self.tables.write_batch(replace(batch, finished_at=self.clock.now()))
        return await super().reclaim(limit)


class _Silent(BatchLifecycle):
    def set_status(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        if status is BatchStatus.CANCELLED:
            batch = replace(batch, on_complete=None)
        super().set_status(batch, status, now, reason)


class NoticeForgotten(PlantedBatch):
    """A batch that is cancelled ends without a word."""

    breaks = _ENDS
    lifecycle_type = _Silent


class _Early(BatchLifecycle):
    def set_status(self, batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> None:
        if status is BatchStatus.RUNNING and batch.on_complete is not None:
            self._tables.place(replace(batch.on_complete, id=batch.on_complete.id[:-1] + "0"), now)
        super().set_status(batch, status, now, reason)


class NoticeTooEarly(PlantedBatch):
    """A batch that starts says that it has ended."""

    breaks = f"{_ENDS}|nothing appears unasked"
    lifecycle_type = _Early


class CountsDrift(PlantedBatch):
    """Items that end with their batch's cancellation are not counted."""

    breaks = _COUNTS

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        changed = await super().act_on_batch(batch, act, limit=limit)
        if isinstance(act, Cancel) and changed.changed:
            for counts in self.tables.items[batch].values():
                counts.pop(State.CANCELLED, None)
        return changed


class ItemDropped(PlantedBatch):
    """The last item of a batch is lost on the way."""

    breaks = _COUNTS

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        return await super().create_batch(batch, items[: max(1, len(items) - 1)])


class _HoldsNothing(BatchLifecycle):
    def hold_drawn(self, batch: BatchId) -> int:
        return 0


class PauseLeavesTheDrawn(PlantedBatch):
    """What was drawn before the pause starts all the same."""

    breaks = _STOPPED
    lifecycle_type = _HoldsNothing


class _DrawsFromAll(BatchLifecycle):
    def _running(self) -> list[Batch]:
        return [batch for batch in self._tables.batches.values() if batch.status not in OVER]

    def _draw(self, task: Task, now: Moment) -> State:
        return self._tables.move(task, State.PENDING, reason=None).state


class PausedButDrawn(PlantedBatch):
    """A claim draws from whatever is not over."""

    breaks = _STOPPED
    lifecycle_type = _DrawsFromAll


BATCH_BUGS: list[type[Planted]] = [*PlantedBatch.__subclasses__()]
