"""Batches whose items change in this transaction: locked first, then given the status that follows from their items."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pitboss.engines.postgres.put import put
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.model.batch import OVER, BatchId, BatchStatus
from pitboss.model.batching import Place, completion, end_of_line, promotable, reason_in, status_with
from pitboss.model.duration import Moment
from pitboss.model.states import State
from pitboss.model.task import NewTask

_decode_task = msgspec.json.Decoder(NewTask).decode
_STATUSES = {status.value: status for status in BatchStatus}
_ALL_QUEUES = "*"
# What the text of a task contains only if it may have an order key.
_ORDERED = '"order_key":"'


class LockedBatch(NamedTuple):
    """A batch as its locked row says."""

    id: BatchId
    lane: str
    status: BatchStatus
    unfinished: int
    rank: int
    started_at: Moment | None
    reason: str | None
    on_complete: str | None
    run: int = 1


class LockedBatches:
    """The batches of one transaction. Locks are taken in this order: lanes by name, batches by id."""

    def __init__(self, sql: Statements, *, lanes: bool) -> None:
        self._sql, self.lanes = sql, lanes
        self.batches: dict[BatchId, LockedBatch] = {}

    def lock(self, touched: Mapping[BatchId, int]) -> Script[bool]:
        """Lock these batches, of which up to this many items may end. False if one of them could leave its slot by
        that and lanes are not locked: begin again with lanes."""
        if not touched:
            return True
        if self.lanes:
            rows = yield self._sql.ask("batch_get", ids=names(touched))
            yield self._sql.ask("lane_lock", names=names(row[1] for row in rows))
        return self.locked((yield self.locking(touched)), touched)

    def locking(self, ids: Iterable[BatchId]) -> Ask:
        """The statement of `lock`, without lanes."""
        return self._sql.ask("batch_lock", ids=names(ids))

    def locked(self, rows: Iterable[Row], touched: Mapping[BatchId, int]) -> bool:
        """Note what was locked; answers as `lock` does."""
        for batch, lane, status, *rest in rows:
            self.batches[batch] = LockedBatch(batch, lane, _STATUSES[status], *rest)
        return self.lanes or not any(
            one.status not in OVER and (one.status is BatchStatus.PAUSING or one.unfinished <= touched.get(one.id, 0))
            for one in self.batches.values()
        )

    @property
    def running(self) -> str:
        """Those that run, as an array literal; items of others do not become pending again."""
        return names(one.id for one in self.batches.values() if one.status is BatchStatus.RUNNING)

    def runs(self, batch: BatchId | None) -> bool:
        return batch is None or (known := self.batches.get(batch)) is None or known.status is BatchStatus.RUNNING

    def completions(self) -> list[NewTask]:
        """Tasks with an order key that are put if these batches end."""
        ends = [one.on_complete for one in self.batches.values() if one.status not in OVER]
        return [_decode_task(text) for text in ends if text is not None and _ORDERED in text]

    def changed(self, unfinished: Mapping[BatchId, int], now: Moment) -> Script[None]:
        """The number of unfinished items of these batches has changed by this much, or items have stopped."""
        touched = sorted(batch for batch in unfinished if batch in self.batches)
        if not touched:
            return
        changes = numbers([unfinished[batch] for batch in touched])
        for batch, left in (yield self._sql.ask("batch_count_unfinished", ids=texts(touched), changes=changes)):
            self.batches[batch] = self.batches[batch]._replace(unfinished=left)
        yield from self.close(touched, now)

    def close(self, touched: Iterable[BatchId], now: Moment) -> Script[None]:
        """Give each batch the status that follows from its items."""
        unsure = [
            batch
            for batch in touched
            if (one := self.batches[batch]).status not in OVER
            and (not one.unfinished or one.status is BatchStatus.PAUSING)
        ]
        if not unsure:
            return
        for batch, runs, failed in (yield self._sql.ask("batch_check", ids=texts(unsure))):
            one = self.batches[batch]
            counts = {State.RUNNING: int(runs), State.FAILED: int(failed), State.HELD: one.unfinished - int(runs)}
            yield from self.enter(one, status_with(one.status, counts), now)

    def enter(self, batch: LockedBatch, status: BatchStatus, now: Moment, reason: str | None = None) -> Script[None]:
        """Give a batch another status, and do what follows from that."""
        if status is batch.status:
            return
        started_at = now if status is BatchStatus.RUNNING and batch.started_at is None else batch.started_at
        why = reason_in(status, batch.status, batch.reason, reason)
        entered = batch._replace(status=status, started_at=started_at, reason=why)
        yield from self.write(entered, finished_at=now if status in OVER else None)
        if status is BatchStatus.RUNNING:
            yield self._sql.ask("server_notify", payload=_ALL_QUEUES)
        if status in OVER and batch.on_complete is not None:
            new = completion(_decode_task(batch.on_complete), batch.id, status, batch.run)
            yield from put(self._sql, [new], now, ring=True)
        if status is not BatchStatus.RUNNING:
            # Starting a batch frees no slot; this avoids recursion.
            yield from self.promote(batch.lane, now)

    def promote(self, lane: str, now: Moment) -> Script[None]:
        """Give the free slots of a locked lane to its next batches."""
        rows = yield self._sql.ask("lane_max_running", lane=lane)
        if not rows:
            return
        for batch in promotable((yield from line(self._sql, lane)), rows[0][0]):
            one = yield from self._known(batch)
            yield from self.enter(one, BatchStatus.RUNNING, now)

    def back_in_line(self, batch: LockedBatch) -> Script[None]:
        """Put an ended batch that has items to run again at the end of its lane."""
        rank = end_of_line((yield from line(self._sql, batch.lane)))
        queued = batch._replace(status=BatchStatus.QUEUED, rank=rank, started_at=None, reason=None, run=batch.run + 1)
        yield from self.write(queued)

    def write(self, batch: LockedBatch, finished_at: Moment | None = None) -> Script[None]:
        self.batches[batch.id] = batch
        yield self._sql.ask(
            "batch_write",
            id=batch.id,
            status=batch.status.value,
            rank=batch.rank,
            started_at=batch.started_at,
            finished_at=finished_at,
            reason=batch.reason,
            run=batch.run,
        )

    def _known(self, batch: BatchId) -> Script[LockedBatch]:
        if batch not in self.batches:
            ((_, lane, status, *rest),) = yield self._sql.ask("batch_lock", ids=names([batch]))
            self.batches[batch] = LockedBatch(batch, lane, _STATUSES[status], *rest)
        return self.batches[batch]


def line(sql: Statements, lane: str) -> Script[list[Place]]:
    """The batches of a lane that have not ended."""
    rows = yield sql.ask("lane_line", lane=lane)
    return [Place(rank, batch, _STATUSES[status]) for rank, batch, status in rows]


def task_text(task: NewTask | None) -> str | None:
    return None if task is None else msgspec.json.encode(task).decode()
