"""Batches as operators make, change and see them.

Lock order: bounded queues, the lane, batches, the order keys of tasks that are put at their end, then items by id.
"""

from collections.abc import Sequence

from pitboss.engines.postgres.batch_views import view, views
from pitboss.engines.postgres.control import cancel_locked, retry_locked
from pitboss.engines.postgres.locked_batches import LockedBatch, LockedBatches, line, task_text
from pitboss.engines.postgres.order import LockedOrder
from pitboss.engines.postgres.put import check_room, lock_room, put
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements, current
from pitboss.model.batch import (
    Batch,
    BatchAct,
    BatchChanged,
    BatchId,
    BatchStatus,
    Cancel,
    Delete,
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
from pitboss.model.batching import checked_lane, end_of_line, ranks_after, status_wanted
from pitboss.model.duration import Moment
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed

_PUT_AT_ONCE = 10_000


def create(sql: Statements, new: NewBatch, items: Sequence[NewTask], now: Moment | None) -> Script[Batch]:
    """Store a batch with its items, within a transaction; the same id again changes nothing."""
    moment = yield from current(sql, now)
    known = yield from view(sql, new.id, moment)
    if known is not None:
        return known
    bounded = yield from lock_room(sql, items)
    locked = LockedBatches(sql, lanes=True)
    yield sql.ask("lane_create", name=new.lane)
    yield sql.ask("lane_lock", names=names([new.lane]))
    status = BatchStatus.PAUSED if new.paused else BatchStatus.QUEUED
    rank = end_of_line((yield from line(sql, new.lane)))
    made = yield sql.ask(
        "batch_create",
        moment,
        id=new.id,
        rank=rank,
        status=status.value,
        lane=new.lane,
        name=new.name,
        data=new.data,
        by=new.by,
        on_complete=task_text(new.on_complete),
    )
    if made:
        locked.batches[new.id] = LockedBatch(new.id, new.lane, status, 0, rank, None, None, task_text(new.on_complete))
        placed = yield from _put(sql, items, new.id, moment)
        if bounded:
            yield from check_room(sql, items, placed)
        yield from locked.changed({new.id: sum(one.created for one in placed)}, moment)
        yield from locked.promote(new.lane, moment)
    batch = yield from view(sql, new.id, moment)
    if batch is None:
        raise no_such_batch(new.id)
    return batch


def _put(sql: Statements, items: Sequence[NewTask], batch: BatchId, now: Moment) -> Script[list[Placed]]:
    """In portions, as the time limit is for each statement."""
    placed: list[Placed] = []
    for start in range(0, len(items), _PUT_AT_ONCE):
        some = items[start : start + _PUT_AT_ONCE]
        placed += yield from put(sql, some, now, ring=False, batch=batch, follows=False)
    return placed


def act_on(sql: Statements, batch: BatchId, act: BatchAct, limit: int, now: Moment | None) -> Script[BatchChanged]:
    """Do what an operator asked for, within a transaction."""
    moment = yield from current(sql, now)
    locked = LockedBatches(sql, lanes=True)
    yield from locked.lock({batch: 0})
    shown = yield from view(sql, batch, moment)
    if shown is None or batch not in locked.batches:
        raise no_such_batch(batch)
    check_act(shown, act)
    order = LockedOrder(sql)
    yield from order.lock({}, locked.completions())
    done = yield from _Act(sql, locked, batch, limit, moment).do(act)
    if batch in locked.batches:
        yield from locked.close([batch], moment)
    yield from order.advance(moment)
    left = yield from view(sql, batch, moment)
    return BatchChanged(batch=left, changed=done[0], refused=done[2], more=done[1])


def change_lane(sql: Statements, name: str, max_running: int, now: Moment | None) -> Script[None]:
    moment = yield from current(sql, now)
    yield sql.ask("lane_set", name=name, max_running=checked_lane(max_running))
    yield from LockedBatches(sql, lanes=True).promote(name, moment)


def cancel_items(
    sql: Statements, locked: LockedBatches, batch: LockedBatch, limit: int, now: Moment
) -> Script[tuple[int, bool]]:
    """Cancel waiting items of a locked batch and ask running ones to stop; how many, and whether more are left."""
    found = yield sql.ask("batch_open_items", batch=batch.id, limit=limit + 1)
    rows = yield sql.ask("batch_lock_items", ids=texts([row[0] for row in found[:limit]]))
    changed, asked = yield from cancel_locked(sql, locked, [row[0] for row in rows], batch.reason or "cancelled", now)
    return changed + asked, len(found) > limit


def go_on_cancelling(
    sql: Statements, ids: Sequence[BatchId], limit: int, now: Moment | None
) -> Script[tuple[int, bool]]:
    """Finish the cancellation of batches whose caller stopped in the middle, within a transaction."""
    moment = yield from current(sql, now)
    locked = LockedBatches(sql, lanes=True)
    yield from locked.lock(dict.fromkeys(ids, 0))
    order = LockedOrder(sql)
    yield from order.lock({}, locked.completions())
    cancelled, more = 0, False
    for batch in sorted(locked.batches):
        if locked.batches[batch].status is BatchStatus.CANCELLING:
            changed, left = yield from cancel_items(sql, locked, locked.batches[batch], limit - cancelled, moment)
            cancelled, more = cancelled + changed, more or left
    yield from order.advance(moment)
    return cancelled, more


_Done = tuple[int, bool, tuple[str, ...]]


class _Act:
    """One act on one batch, which is locked together with its lane."""

    def __init__(self, sql: Statements, locked: LockedBatches, batch: BatchId, limit: int, now: Moment) -> None:
        self._sql, self._locked, self._id, self._limit, self._now = sql, locked, batch, limit, now

    @property
    def _batch(self) -> LockedBatch:
        return self._locked.batches[self._id]

    def do(self, act: BatchAct) -> Script[_Done]:
        match act:
            case Pause():
                return (yield from self._stop(act, act.reason or None)), False, ()
            case Resume() | Start():
                yield from self._go(act)
            case Move():
                yield from self._move(act)
            case Cancel():
                yield from self._stop(act, act.reason or None)
                changed, more = yield from cancel_items(self._sql, self._locked, self._batch, self._limit, self._now)
                return changed, more, ()
            case Requeue():
                return (yield from self._requeue(act))
            case Delete():
                yield from self._stop(act)
                return (yield from self._delete())
        return 0, False, ()

    def _stop(self, act: BatchAct, reason: str | None = None) -> Script[int]:
        """Give it a status in which no item starts; how many drawn items were held again."""
        if status_wanted(act, self._batch.status, {}) is self._batch.status:
            return 0
        ((held,),) = yield self._sql.ask("batch_hold", batch=self._id)
        # Claims that were about to take items are over by now: only now is it known what runs.
        running = yield from self._running()
        if isinstance(act, Delete) and running[State.RUNNING]:
            shown = yield from views(self._sql, [self._id], self._now)
            check_act(shown[self._id], act)
        status = status_wanted(act, self._batch.status, running)
        yield from self._locked.enter(self._batch, status, self._now, reason)
        count: int = held
        return count

    def _running(self) -> Script[dict[State, int]]:
        ((_, runs, _),) = yield self._sql.ask("batch_check", ids=texts([self._id]))
        return {State.RUNNING: int(runs)}

    def _go(self, act: Resume | Start) -> Script[None]:
        if isinstance(act, Resume) and self._batch.status is BatchStatus.PAUSED:
            yield from self._write_ranks(act)
        status = status_wanted(act, self._batch.status, {})
        yield from self._locked.enter(self._batch, status, self._now)

    def _move(self, act: Move) -> Script[None]:
        if act.to == "before":
            shown = yield from views(self._sql, [self._id, *([act.before] if act.before else [])], self._now)
            check_before(shown[self._id], shown.get(act.before or ""))
        yield from self._write_ranks(act)

    def _write_ranks(self, act: Move | Resume) -> Script[None]:
        ranks = ranks_after(act, self._id, (yield from line(self._sql, self._batch.lane)))
        if ranks:
            yield self._sql.ask("batch_rank", ids=texts(list(ranks)), ranks=numbers(list(ranks.values())))
        if self._id in ranks:
            self._locked.batches[self._id] = self._batch._replace(rank=ranks[self._id])

    def _requeue(self, act: Requeue) -> Script[_Done]:
        found = yield self._sql.ask(
            "batch_requeueable", batch=self._id, cancelled=act.cancelled, error=act.error, limit=self._limit + 1
        )
        tasks = [(row[0], row[1]) for row in found[: self._limit]]
        changed, refused = yield from retry_locked(self._sql, self._locked, tasks, act.keep_attempts, self._now)
        yield from self._locked.promote(self._batch.lane, self._now)
        return changed, len(found) > self._limit, refused

    def _delete(self) -> Script[_Done]:
        """Finished items first: while an unfinished one is left, the status of the batch stays right."""
        found: list[Row] = yield self._sql.ask("batch_items", batch=self._id, limit=self._limit + 1)
        ids = texts([row[0] for row in found[: self._limit]])
        ((gone, unfinished),) = yield self._sql.ask("task_remove", self._now, ids=ids)
        yield self._sql.ask("batch_count_unfinished", ids=texts([self._id]), changes=numbers([-unfinished]))
        more = len(found) > self._limit
        if not more:
            yield self._sql.ask("batch_count_remove", batch=self._id)
            yield self._sql.ask("batch_remove", batch=self._id)
            lane = self._locked.batches.pop(self._id).lane
            yield from self._locked.promote(lane, self._now)
        return gone, more, ()
