"""Batches: creating, reading and changing them."""

from collections.abc import Mapping, Sequence

import msgspec

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.batch import (
    IN_SLOT,
    Batch,
    BatchAct,
    BatchChanged,
    BatchId,
    BatchStatus,
    Cancel,
    Delete,
    Lane,
    Move,
    NewBatch,
    Pause,
    Requeue,
    Resume,
    Start,
    check_act,
    check_before,
    no_such_batch,
)
from pitboss.model.batching import (
    checked_lane,
    end_of_line,
    listed,
    positions,
    ranks_after,
    recent_since,
    status_wanted,
    wants_back,
)
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED
from pitboss.model.task import NewTask
from pitboss.model.usage import check_taking


class _Done(msgspec.Struct):
    """What an act did to the items."""

    changed: int = 0
    more: bool = False
    refused: tuple[TaskId, ...] = ()


class BatchVerbs(Verbs):
    """The protocol `Batches`."""

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        self._reach("create_batch.before")
        now = self.clock.now()
        if batch.id not in self.tables.batches:
            check_taking(self.tables.refusing)
            self.tables.check_room(items, now)
            self._create(batch, items, now)
        self._reach("create_batch.after")
        return self._view(batch.id, now)

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        self._reach("act_on_batch.before")
        now = self.clock.now()
        known = self.tables.batches.get(batch)
        if known is None:
            raise no_such_batch(batch)
        check_act(self._view(batch, now), act)
        done = self._act(known, act, limit, now)
        self.batch_lifecycle.update_batches(now)
        left = self._view(batch, now) if batch in self.tables.batches else None
        self.audit()
        self._reach("act_on_batch.after")
        return BatchChanged(batch=left, changed=done.changed, refused=done.refused, more=done.more)

    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        now, known = self.clock.now(), self.tables.batches
        if ids is not None:
            return listed(self._view(batch, now) for batch in dict.fromkeys(ids) if batch in known)
        wanted = listed(batch for batch in known.values() if not statuses or batch.status in statuses)[:limit]
        places = {lane: positions(self.batch_lifecycle.line(lane)) for lane in {batch.lane for batch in wanted}}
        return [self._view(batch.id, now, places[batch.lane]) for batch in wanted]

    async def lanes(self) -> list[Lane]:
        return [self._lane(name) for name in sorted(self.tables.lanes)]

    async def change_lane(self, name: str, max_running: int) -> Lane:
        self.tables.lanes[name] = checked_lane(max_running)
        self.batch_lifecycle.promote(name, self.clock.now())
        self.audit()
        return self._lane(name)

    def _create(self, new: NewBatch, items: Sequence[NewTask], now: Moment) -> None:
        self.tables.write_batch(
            Batch(
                id=new.id,
                name=new.name,
                lane=new.lane,
                status=BatchStatus.PAUSED if new.paused else BatchStatus.QUEUED,
                data=new.data,
                by=new.by,
                rank=end_of_line(self.batch_lifecycle.line(new.lane)),
                created_at=now,
                on_complete=new.on_complete,
            )
        )
        for item in items:
            self.tables.place(item, now, new.id)
        # A batch without items is over at once, before it gets a slot.
        self.tables.touched[new.id] = None
        self.batch_lifecycle.update_batches(now)
        self.batch_lifecycle.promote(new.lane, now)

    def _act(self, batch: Batch, act: BatchAct, limit: int, now: Moment) -> _Done:
        match act:
            case Pause():
                return _Done(self._stop(batch, act, now, act.reason or None))
            case Resume() | Start():
                self._go(batch, act, now)
            case Move():
                self._move(batch, act)
            case Cancel():
                self._stop(batch, act, now, act.reason or None)
                return _Done(*self.batch_lifecycle.cancel_items(self.tables.batches[batch.id], limit, now))
            case Requeue():
                return self._requeue(batch, act, limit, now)
            case Delete():
                self._stop(batch, act, now)
                return self._delete(self.tables.batches[batch.id], limit)
        return _Done()

    def _stop(self, batch: Batch, act: BatchAct, now: Moment, reason: str | None = None) -> int:
        """Enter a status in which no item starts, and hold the drawn items; how many."""
        status = status_wanted(act, batch.status, self.batch_lifecycle.counts(batch.id))
        if status is batch.status:
            return 0
        held = self.batch_lifecycle.hold_drawn(batch.id)
        self.batch_lifecycle.set_status(batch, status, now, reason)
        return held

    def _go(self, batch: Batch, act: Resume | Start, now: Moment) -> None:
        if isinstance(act, Resume) and batch.status is BatchStatus.PAUSED:
            self._write_ranks(ranks_after(act, batch.id, self.batch_lifecycle.line(batch.lane)))
        status = status_wanted(act, batch.status, self.batch_lifecycle.counts(batch.id))
        self.batch_lifecycle.set_status(self.tables.batches[batch.id], status, now)

    def _move(self, batch: Batch, act: Move) -> None:
        if act.to == "before":
            check_before(batch, self.tables.batches.get(act.before or ""))
        self._write_ranks(ranks_after(act, batch.id, self.batch_lifecycle.line(batch.lane)))

    def _write_ranks(self, ranks: Mapping[BatchId, int]) -> None:
        for batch, rank in ranks.items():
            self.tables.write_batch(msgspec.structs.replace(self.tables.batches[batch], rank=rank))

    def _requeue(self, batch: Batch, act: Requeue, limit: int, now: Moment) -> _Done:
        found = [task for task in self.batch_lifecycle.items(batch.id) if wants_back(act, task)]
        refused = tuple(task.id for task in found[:limit] if not self._revive(task, act.keep_attempts))
        self.batch_lifecycle.promote(batch.lane, now)
        return _Done(len(found[:limit]) - len(refused), len(found) > limit, refused)

    def _delete(self, batch: Batch, limit: int) -> _Done:
        """Delete finished items first: the status of the batch follows from the items that are left."""
        items = sorted(self.batch_lifecycle.items(batch.id), key=lambda task: (task.state not in FINISHED, task.id))
        for task in items[:limit]:
            self.tables.remove(task)
        if len(items) <= limit:
            self.tables.remove_batch(batch)
        return _Done(len(items[:limit]), len(items) > limit)

    def _view(self, batch: BatchId, now: Moment, places: Mapping[BatchId, int] | None = None) -> Batch:
        known = self.tables.batches[batch]
        places = positions(self.batch_lifecycle.line(known.lane)) if places is None else places
        queues = (queue for queue, counts in self.tables.items[batch].items() if counts)
        return msgspec.structs.replace(
            known,
            position=places.get(batch),
            counts=self.batch_lifecycle.counts(batch),
            queues=tuple(sorted(queues)),
            recent=self.tables.indexes.ended_since(batch, recent_since(known.started_at, now)),
        )

    def _lane(self, name: str) -> Lane:
        statuses = [batch.status for batch in self.tables.lines[name].values()]
        return Lane(
            name=name,
            max_running=self.tables.lanes[name],
            running=sum(status in IN_SLOT for status in statuses),
            queued=statuses.count(BatchStatus.QUEUED),
        )
