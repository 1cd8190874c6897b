"""Batches and lanes as operators create, change and see them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.batch_lifecycle import (
    STATUSES,
    batch_of,
    conclude,
    end_of_line,
    enter,
    item_counts,
    stored,
)
from pitboss.engines.sqlite.control import cancel_items, erase, items, revive
from pitboss.engines.sqlite.put import put_items
from pitboss.engines.sqlite.rows import STATES
from pitboss.model.batch import (
    IN_SLOT,
    OVER,
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
    Place,
    checked_lane,
    listed,
    positions,
    ranks_after,
    recent_since,
    status_wanted,
)
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import NewTask, Task

# A reader's statements, or those of an act.
Rows = Callable[..., Iterable[Any]]
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
        # A batch without items ends at once, and never gets a slot.
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
    return next(lane for lane in lanes(act.rows) if lane.name == name)


def get(rows: Rows, now: Moment, ids: Sequence[BatchId]) -> list[Batch]:
    """These batches, as they are listed."""
    return _viewed(rows, now, listed(batch_of(row) for row in rows("batch_list_named", json_list(ids))))


def find(rows: Rows, now: Moment, statuses: Sequence[BatchStatus], limit: int) -> list[Batch]:
    """The first of these statuses (none named: all), as they are listed."""
    wanted = [status for status in BatchStatus if not statuses or status in statuses]
    live = [status.value for status in wanted if status not in OVER]
    over = [status.value for status in wanted if status in OVER]
    batches = [batch_of(row) for row in rows("batch_list_live", json_list(live))] if live else []
    if over and len(batches) < limit:
        batches += [batch_of(row) for row in rows("batch_list_ended", json_list(over), limit)]
    return _viewed(rows, now, listed(batches)[:limit])


def lanes(rows: Rows) -> list[Lane]:
    """Every lane by name."""
    standing: dict[str, dict[BatchStatus, int]] = {}
    for lane, status, n in rows("lane_counts"):
        standing.setdefault(lane, {})[STATUSES[status]] = n
    return [_lane(name, most, standing.get(name, {})) for name, most in rows("lane_list")]


def _line(rows: Rows, lane: str) -> list[Place]:
    """The batches of a lane that have not ended."""
    return [Place(rank, batch, STATUSES[status]) for rank, batch, status in rows("lane_line", lane)]


def _view(act: Act, name: BatchId) -> Batch:
    return get(act.rows, act.now, [name])[0]


def _do(act: Act, batch: Batch, wanted: BatchAct, limit: int) -> _Done:
    match wanted:
        case Pause():
            return _Done(_stop(act, batch, wanted, wanted.reason or None))
        case Resume() | Start():
            _go(act, batch, wanted)
        case Move():
            _move(act, batch, wanted)
        case Cancel():
            _stop(act, batch, wanted, wanted.reason or None)
            return _Done(*cancel_items(act, stored(act, batch.id) or batch, limit))
        case Requeue():
            return _requeue(act, batch, wanted, limit)
        case Delete():
            _stop(act, batch, wanted)
            return _delete(act, batch, limit)
    return _Done()


def _stop(act: Act, batch: Batch, wanted: BatchAct, reason: str | None = None) -> int:
    """Change to a status in which no item starts; how many items had been drawn."""
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
    act.write_counts()
    enter(act, batch, status, reason)
    return drawn


def _go(act: Act, batch: Batch, wanted: Resume | Start) -> None:
    status = status_wanted(wanted, batch.status, item_counts(act, batch.id))
    if isinstance(wanted, Resume) and batch.status is BatchStatus.PAUSED:
        _write_ranks(act, ranks_after(wanted, batch.id, _line(act.rows, batch.lane)))
    enter(act, stored(act, batch.id) or batch, status)


def _move(act: Act, batch: Batch, wanted: Move) -> None:
    if wanted.to == "before":
        check_before(batch, None if wanted.before is None else stored(act, wanted.before))
    _write_ranks(act, ranks_after(wanted, batch.id, _line(act.rows, batch.lane)))


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
    """Finished items first: while items are left, the status of the batch must follow from them."""
    found: list[Task] = items(act, batch.id, sorted(FINISHED), limit + 1)
    if len(found) <= limit:
        found += items(act, batch.id, sorted(WAITING), limit + 1 - len(found))
    erase(act, found[:limit])
    if len(found) <= limit:
        act.write_counts()
        act.run("batch_count_remove", batch.id)
        act.run("batch_remove", batch.id)
        act.lanes.add(batch.lane)
    return _Done(len(found[:limit]), len(found) > limit)


def _lane(name: str, most: int, counts: dict[BatchStatus, int]) -> Lane:
    running = sum(counts.get(status, 0) for status in IN_SLOT)
    return Lane(name=name, max_running=most, running=running, queued=counts.get(BatchStatus.QUEUED, 0))


def _viewed(rows: Rows, now: Moment, batches: Sequence[Batch]) -> list[Batch]:
    places: dict[str, int] = {}
    for lane in {batch.lane for batch in batches if batch.status not in OVER}:
        places |= positions(_line(rows, lane))
    return [_with_counts(rows, now, batch, places.get(batch.id)) for batch in batches]


def _with_counts(rows: Rows, now: Moment, batch: Batch, position: int | None) -> Batch:
    counts: dict[State, int] = {}
    queues: dict[str, None] = {}
    for queue, state, n in rows("batch_count_list", batch.id):
        counts[STATES[state]] = counts.get(STATES[state], 0) + n
        queues[queue] = None
    recent = next(iter(rows("batch_recent", batch.id, recent_since(batch.started_at, now))))[0]
    return msgspec.structs.replace(batch, position=position, counts=counts, queues=tuple(sorted(queues)), recent=recent)
