"""Batches and lanes, written down."""

from collections.abc import Sequence

from msgspec.structs import replace

from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.task import NewTask
from pitboss.testing import history as told
from pitboss.testing.recorder import Recorder

_ALL = 10_000


class RecordedBatches(Recorder):
    """The protocol `Batches`."""

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        act = told.CreateBatch(batch=batch, items=tuple(items))
        return await self._call(
            act, lambda some: self.whole.create_batch(batch, some), items, lambda done: replace(act, created=done)
        )

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        noted = told.ActOnBatch(batch=batch, act=act)
        return await self._call(
            noted,
            lambda one: self.whole.act_on_batch(batch, one, limit=limit),
            act,
            lambda changed: replace(noted, changed=changed),
        )

    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        return await self.whole.batches(ids, statuses=statuses, limit=limit)

    async def read_batches(self) -> list[Batch]:
        """All of them at one moment, as evidence."""
        act = told.ReadBatches()
        return await self._call(
            act,
            lambda limit: self.whole.batches(limit=limit),
            _ALL,
            lambda batches: replace(act, batches=tuple(batches)),
        )

    async def lanes(self) -> list[Lane]:
        return await self.whole.lanes()

    async def change_lane(self, name: str, max_running: int) -> Lane:
        act = told.ChangeLane(name=name, max_running=max_running)
        return await self._call(
            act, lambda most: self.whole.change_lane(name, most), max_running, lambda lane: replace(act, lane=lane)
        )
