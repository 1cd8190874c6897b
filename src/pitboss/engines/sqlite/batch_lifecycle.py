"""How batches move on: items are drawn, batches end with their last item, and the next of a lane is promoted."""

from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.put import put_follow_ups
from pitboss.engines.sqlite.rows import STATES
from pitboss.model.batch import STEP, Batch, BatchId, BatchStatus
from pitboss.model.batching import PASSED_BY, entered, requeued, status_with
from pitboss.model.duration import Moment
from pitboss.model.session import Slot
from pitboss.model.states import State
from pitboss.model.task import NewTask

STATUSES = {status.value: status for status in BatchStatus}
_new_task = msgspec.json.Decoder(NewTask)


class _Undrawn(msgspec.Struct, array_like=True):
    """An item that waits to be drawn, in the order of the columns that the statement names."""

    priority: int
    id: str
    row: int
    queue: str
    run_at: Moment | None


_undrawn = msgspec.json.Decoder(list[_Undrawn])


def conclude(act: Act) -> None:
    """The end of an act that changed items of batches: write the counts, end batches, promote the next ones."""
    act.write_counts()
    while act.touched or act.lanes:
        touched, act.touched = list(act.touched), {}
        for name in touched:
            batch = stored(act, name)
            if batch is not None:
                enter(act, batch, status_with(batch.status, item_counts(act, name)))
                _promote(act)
        _promote(act)
        act.write_counts()


def enter(act: Act, batch: Batch, status: BatchStatus, reason: str | None = None) -> None:
    """Give the batch another status, with all its consequences."""
    if status is batch.status:
        return
    changed, on_complete = entered(batch, status, act.now, reason)
    _write(act, changed)
    if status is BatchStatus.RUNNING:
        act.rings.update(_queues(act, batch.id))
    if on_complete is not None:
        put_follow_ups(act, [on_complete])
    act.lanes.add(batch.lane)


def back_in_line(act: Act, batch: Batch) -> None:
    """Queue an ended batch again, at the end of its lane."""
    _write(act, requeued(batch, end_of_line(act, batch.lane)))
    act.lanes.add(batch.lane)


def end_of_line(act: Act, lane: str) -> int:
    """The rank behind all batches of the lane that have not ended."""
    row: Any = act.one("batch_last_rank", lane)
    return (row[0] or 0) + STEP


def stored(act: Act, batch: BatchId) -> Batch | None:
    """The batch without the counts of its items."""
    row = act.one("batch_get", batch)
    return None if row is None else batch_of(row)


def statuses(act: Act, batches: Iterable[BatchId | None]) -> dict[str | None, BatchStatus]:
    """The statuses of these batches; None is no batch."""
    names = {batch for batch in batches if batch is not None}
    if not names:
        return {}
    rows: Iterable[Any] = act.rows("batch_statuses", json_list(sorted(names)))
    return {batch: STATUSES[status] for batch, status in rows}


def item_counts(act: Act, batch: BatchId) -> dict[State, int]:
    rows: Iterable[Any] = act.rows("batch_count_states", batch)
    return {STATES[state]: n for state, n in rows}


def batch_of(row: Sequence[Any]) -> Batch:
    """A batch of the columns that the statements name."""
    batch, name, lane, status, rank, by, created_at, started_at, finished_at, reason, data, on_complete, run = row
    return Batch(
        id=batch,
        name=name,
        lane=lane,
        status=STATUSES[status],
        rank=rank,
        by=by,
        created_at=created_at,
        started_at=started_at,
        finished_at=finished_at,
        reason=reason,
        data=data,
        on_complete=None if on_complete is None else _new_task.decode(on_complete),
        run=run,
    )


def draw(act: Act, slots: Sequence[Slot], divided: Container[str]) -> bool:
    """Make items of running batches pending for these slots; True if there may be more at once. Those in queues with
    partitions, which are `divided`, are drawn for each slot in turn (`keyed`)."""
    act.write_counts()
    wanted = sum(slot.free + slot.ahead for slot in slots)
    everything = any(slot.queues is None for slot in slots)
    asked = {queue for slot in slots for queue in slot.queues or ()}
    rows: Iterable[Any] = act.rows("batch_draw_open")
    open_rows = [row[:5] for row in rows if row[1] not in divided and (row[1] in asked or (everything and not row[5]))]
    more, drawn, pending = False, 0, 0
    for batch, group in groupby(open_rows, key=lambda row: row[0]):
        counts = list(group)
        queues = {queue: waiting for _, queue, _, waiting, _ in counts}
        beyond = PASSED_BY if any(held and bound for _, _, held, _, bound in counts) else 0
        missing = max(0, wanted + beyond - sum(queues.values()))
        found = _first_items(act, batch, queues, missing + 1) if missing else []
        more = more or len(found) > missing
        pending += _draw(act, batch, found[:missing])
        drawn += len(found[:missing])
    if drawn:
        act.write_counts()
    return more and drawn > 0 and not pending


def _first_items(act: Act, batch: BatchId, queues: Iterable[str], limit: int) -> list[_Undrawn]:
    found = [one for queue in queues for one in act.decoded("batch_draw_items", _undrawn, batch, queue, limit)]
    return sorted(found, key=lambda one: (one.priority, one.id))[:limit]


def _draw(act: Act, batch: BatchId, items: list[_Undrawn]) -> int:
    """Release these items; how many of them are pending now."""
    if not items:
        return 0
    act.run("held_release", act.now, json_list(one.row for one in items))
    pending = 0
    for one in items:
        later = one.run_at is not None and one.run_at > act.now
        act.moved(one.queue, "held", "scheduled" if later else "pending", batch=batch)
        pending += not later
    return pending


def _write(act: Act, batch: Batch) -> None:
    moments = (batch.started_at, batch.finished_at)
    act.run("batch_write", batch.id, batch.status.value, batch.rank, *moments, batch.reason, batch.run)


def _promote(act: Act) -> None:
    lanes, act.lanes = sorted(act.lanes), set()
    for lane in lanes:
        rows: list[Any] = list(act.rows("batch_next", lane))
        for row in rows:
            enter(act, batch_of(row), BatchStatus.RUNNING)
        act.lanes.discard(lane)


def _queues(act: Act, batch: BatchId) -> list[str]:
    rows: Iterable[Any] = act.rows("batch_queues", batch)
    return [row[0] for row in rows]
