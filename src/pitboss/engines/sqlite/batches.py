"""Batches as operators make and change them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.batch_views import lane_view, line, views
from pitboss.engines.sqlite.control import cancel_items, erase, items, revive
from pitboss.engines.sqlite.gates import conclude, end_of_line, enter, item_counts, stored
from pitboss.engines.sqlite.put import put_items
from pitboss.model.batch import (
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
from pitboss.model.batching import checked_lane, ranks_after, status_wanted
from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import NewTask, Task

_NAMED = "AND ? IN (error ->> '$.category', error ->> '$.type', error ->> '$.fingerprint')"


class _Done(msgspec.Struct):
    """What an act did to items."""

    changed: int = 0
    more: bool = False
    refused: tuple[TaskId, ...] = ()


def create(act: Act, new: NewBatch, tasks: Sequence[NewTask]) -> Batch:
    """As the contract says."""
    if act.one("batch_get", new.id) is None:
        act.run("lane_create", new.lane)
        status = BatchStatus.PAUSED if new.paused else BatchStatus.QUEUED
        on_complete = None if new.on_complete is None else msgspec.json.encode(new.on_complete).decode()
        place = (new.lane, status.value, end_of_line(act, new.lane))
        act.run("batch_create", new.id, new.name, *place, new.by, act.now, new.data, on_complete)
        put_items(act, tasks, new.id)
        # One without items is over at once, and never has a slot.
        act.touched[new.id] = None
        act.lanes.add(new.lane)
        conclude(act)
    return _view(act, new.id)


def change(act: Act, name: BatchId, wanted: BatchAct, limit: int) -> BatchChanged:
    """As the contract says."""
    batch = stored(act, name)
    if batch is None:
        raise no_such_batch(name)
    check_act(msgspec.structs.replace(batch, counts=item_counts(act, name)), wanted)
    done = _do(act, batch, wanted, limit)
    conclude(act)
    left = _view(act, name) if act.one("batch_get", name) is not None else None
    return BatchChanged(batch=left, changed=done.changed, refused=done.refused, more=done.more)


def change_lane(act: Act, name: str, max_running: int) -> Lane:
    """As the contract says."""
    act.run("lane_set", name, checked_lane(max_running))
    act.lanes.add(name)
    conclude(act)
    return lane_view(act.rows, name)


def _view(act: Act, name: BatchId) -> Batch:
    return views(act.rows, act.now, [name])[0]


def _do(act: Act, batch: Batch, wanted: BatchAct, limit: int) -> _Done:
    match wanted:
        case Pause():
            return _Done(_stop(act, batch, wanted))
        case Resume() | Start():
            _go(act, batch, wanted)
        case Move():
            _move(act, batch, wanted)
        case Cancel():
            _stop(act, batch, wanted, batch.reason or wanted.reason or None)
            return _Done(*cancel_items(act, stored(act, batch.id) or batch, limit))
        case Requeue():
            return _requeue(act, batch, wanted, limit)
        case Delete():
            _stop(act, batch, wanted)
            return _delete(act, batch, limit)
    return _Done()


def _stop(act: Act, batch: Batch, wanted: BatchAct, reason: str | None = None) -> int:
    """Into a status in which nothing of it starts; how many items had been drawn."""
    status = status_wanted(wanted, batch.status, item_counts(act, batch.id))
    if status is batch.status:
        return 0
    drawn = 0
    for state in (State.PENDING, State.SCHEDULED):
        rows: list[Any] = list(act.rows("batch_drawn", batch.id, state.value))
        for queue, n in rows:
            act.moved(queue, state.value, "held", n, batch.id)
            drawn += n
        if rows:
            act.run("batch_hold", batch.id, state.value)
    act.counted()
    enter(act, batch, status, reason)
    return drawn


def _go(act: Act, batch: Batch, wanted: Resume | Start) -> None:
    status = status_wanted(wanted, batch.status, item_counts(act, batch.id))
    if isinstance(wanted, Resume) and batch.status is BatchStatus.PAUSED:
        _write_ranks(act, ranks_after(wanted, batch.id, line(act.rows, batch.lane)))
    enter(act, stored(act, batch.id) or batch, status)


def _move(act: Act, batch: Batch, wanted: Move) -> None:
    if wanted.to == "before":
        check_before(batch, None if wanted.before is None else stored(act, wanted.before))
    _write_ranks(act, ranks_after(wanted, batch.id, line(act.rows, batch.lane)))


def _write_ranks(act: Act, ranks: Mapping[BatchId, int]) -> None:
    for batch, rank in ranks.items():
        act.run("batch_rank", batch, rank)


def _requeue(act: Act, batch: Batch, wanted: Requeue, limit: int) -> _Done:
    extra, values = ("", []) if wanted.error is None else (_NAMED, [wanted.error])
    found = items(act, batch.id, [State.FAILED], limit + 1, extra, values)
    if wanted.cancelled:
        found += items(act, batch.id, [State.CANCELLED], limit + 1)
    found.sort(key=lambda task: task.id)
    refused = revive(act, found[:limit], wanted.keep_attempts)
    act.lanes.add(batch.lane)
    return _Done(len(found[:limit]) - len(refused), len(found) > limit, refused)


def _delete(act: Act, batch: Batch, limit: int) -> _Done:
    """Finished items first: as long as any item is left, the batch is what its items say."""
    found: list[Task] = items(act, batch.id, sorted(FINISHED), limit + 1)
    if len(found) <= limit:
        found += items(act, batch.id, sorted(WAITING), limit + 1 - len(found))
    erase(act, found[:limit])
    if len(found) <= limit:
        act.counted()
        act.run("batch_count_remove", batch.id)
        act.run("batch_remove", batch.id)
        act.lanes.add(batch.lane)
    return _Done(len(found[:limit]), len(found) > limit)
