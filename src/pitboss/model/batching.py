"""The rules of batches and lanes. Pure: engines read, call these functions, and write the result."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pitboss.model.batch import (
    IN_SLOT,
    OVER,
    RECENT,
    STEP,
    Batch,
    BatchAct,
    BatchId,
    BatchStatus,
    Cancel,
    Delete,
    Move,
    Pause,
    Requeue,
    Resume,
    Start,
)
from pitboss.model.canonical import from_json, to_json
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import id_of_run
from pitboss.model.states import FINISHED, State
from pitboss.model.task import NewTask, Task, TaskError


class Place(NamedTuple):
    """A batch that has not ended, with its place in the line of its lane. Sorts in the order of the line."""

    rank: int
    id: BatchId
    status: BatchStatus


class Waiting(NamedTuple):
    """The state in which a task waits, and the reason."""

    state: State
    reason: str | None = None


HELD_BY_BATCH = Waiting(State.HELD, "batch")
HELD_FOR_HANDLER = Waiting(State.HELD, "handler")
# An earlier task with its order key is unfinished.
HELD_IN_ORDER = Waiting(State.HELD, "order")
# A claim looks past this many tasks that fit no member. As many more items are drawn, so that these hide no others.
PASSED_BY = 1000


def waits(batch: BatchStatus | None, *, known: bool, run_at: Moment | None, now: Moment) -> Waiting:
    """The state of a task that goes back to waiting: settled, lost, retried, drawn, or released.

    `batch` is the status of its batch, None if it has none. `known`: its handler is registered, or need not be.
    """
    if batch is not None and batch is not BatchStatus.RUNNING:
        return HELD_BY_BATCH
    if not known:
        return HELD_FOR_HANDLER
    return Waiting(State.SCHEDULED if run_at is not None and run_at > now else State.PENDING)


def status_with(status: BatchStatus, counts: Mapping[State, int]) -> BatchStatus:
    """The status that follows from the states of its items."""
    if status in OVER:
        return status
    if not unfinished(counts):
        if status is BatchStatus.CANCELLING:
            return BatchStatus.CANCELLED
        return BatchStatus.DONE_WITH_ERRORS if counts.get(State.FAILED) else BatchStatus.DONE
    if status is BatchStatus.PAUSING and not counts.get(State.RUNNING):
        return BatchStatus.PAUSED
    return status


class Entered(NamedTuple):
    """A batch in another status, and the task to put because it has ended, if any."""

    batch: Batch
    on_complete: NewTask | None = None


def entered(batch: Batch, status: BatchStatus, now: Moment, reason: str | None = None) -> Entered:
    """The batch in another status. An engine then wakes its queues if it runs, and promotes the next of its lane."""
    over = status in OVER
    changed = msgspec.structs.replace(
        batch,
        status=status,
        started_at=now if status is BatchStatus.RUNNING and batch.started_at is None else batch.started_at,
        finished_at=now if over else batch.finished_at,
        reason=reason_in(status, batch.status, batch.reason, reason),
    )
    if not over or batch.on_complete is None:
        return Entered(changed)
    return Entered(changed, completion(batch.on_complete, batch.id, status, batch.run))


def reason_in(status: BatchStatus, before: BatchStatus, known: str | None, given: str | None) -> str | None:
    """The reason of a batch that enters a status: that of a pause ends with it, that of a cancellation stays."""
    lasts = before is BatchStatus.CANCELLING or (before is BatchStatus.PAUSING and status is BatchStatus.PAUSED)
    return given or (known if lasts else None)


def requeued(batch: Batch, rank: int) -> Batch:
    """An ended batch that has unfinished items again; `rank` is the end of its lane's line."""
    return msgspec.structs.replace(
        batch,
        status=BatchStatus.QUEUED,
        rank=rank,
        started_at=None,
        finished_at=None,
        reason=None,
        run=batch.run + 1,
    )


def status_wanted(act: BatchAct, status: BatchStatus, counts: Mapping[State, int]) -> BatchStatus:
    """The status that an operator's act leads to at once. `check_act` has allowed it; `status_with` comes after it.

    A requeue changes nothing here: it queues an ended batch again only if it changed an item.
    """
    match act:
        case Pause() if status is BatchStatus.RUNNING:
            return BatchStatus.PAUSING if counts.get(State.RUNNING) else BatchStatus.PAUSED
        case Pause() if status is BatchStatus.QUEUED:
            return BatchStatus.PAUSED
        case Resume() if status is BatchStatus.PAUSED:
            return BatchStatus.QUEUED
        case Resume() if status is BatchStatus.PAUSING:
            return BatchStatus.RUNNING
        case Start():
            return BatchStatus.RUNNING
        case Cancel() if status not in OVER:
            return BatchStatus.CANCELLING
        case Delete() if status not in OVER:
            return BatchStatus.PAUSED
    return status


def unfinished(counts: Mapping[State, int]) -> int:
    return sum(count for state, count in counts.items() if state not in FINISHED)


def promotable(line: Iterable[Place], max_running: int) -> list[BatchId]:
    """The queued batches of a lane that get a slot now, in their order."""
    places = sorted(line)
    free = max_running - sum(place.status in IN_SLOT for place in places)
    queued = [place.id for place in places if place.status is BatchStatus.QUEUED]
    return queued[: max(0, free)]


def end_of_line(line: Iterable[Place]) -> int:
    """The rank behind all batches of a lane that have not ended."""
    return max((place.rank for place in line), default=0) + STEP


def ranks_after(act: Move | Resume, batch: BatchId, line: Iterable[Place]) -> dict[BatchId, int]:
    """The ranks that change if a batch moves: its own, or all ranks of the line if none is free between the neighbours.

    `line` are the batches of its lane that have not ended. "up" and "down" pass the next queued batch. "before" names a
    batch of the line (`batch.check_before`).
    """
    places = sorted(line)
    own = next(place for place in places if place.id == batch)
    others = [place for place in places if place.id != batch]
    index = _index(act, own, others)
    if index is None or not others:
        return {}
    rank = _rank_at(index, others)
    if rank is not None:
        return {batch: rank}
    order = [place.id for place in others[:index]] + [batch] + [place.id for place in others[index:]]
    return {one: number * STEP for number, one in enumerate(order, start=1)}


def positions(line: Iterable[Place]) -> dict[BatchId, int]:
    """Place in line by batch: 0 with a slot, 1 is next; a paused batch has none."""
    places = sorted(line)
    queued = [place.id for place in places if place.status is BatchStatus.QUEUED]
    slots = dict.fromkeys((place.id for place in places if place.status in IN_SLOT), 0)
    return slots | {batch: number for number, batch in enumerate(queued, start=1)}


def listed(batches: Iterable[Batch]) -> list[Batch]:
    """In the order of lists: with a slot, queued, paused, each by lane and rank; then ended ones, newest first."""
    batches = list(batches)
    ended = [batch for batch in batches if batch.status in OVER]
    rest = [batch for batch in batches if batch.status not in OVER]
    rest.sort(key=lambda batch: (_group(batch.status), batch.lane, batch.rank, batch.id))
    ended.sort(key=lambda batch: (batch.finished_at or 0, batch.id), reverse=True)
    return rest + ended


def completion(on_complete: NewTask, batch: BatchId, status: BatchStatus, run: int) -> NewTask:
    """The task that is put when a batch has ended, one for each run; its params name the batch and its status.

    They get the number of the run only if they have a number `run` already: a handler need not take it.
    """
    params = from_json(on_complete.params)
    told = {"batch": batch, "status": status, **({"run": run} if isinstance(params.get("run"), int) else {})}
    return msgspec.structs.replace(on_complete, id=id_of_run(on_complete.id, run), params=to_json({**params, **told}))


def wants_back(act: Requeue, task: Task) -> bool:
    """Whether a requeue includes this item."""
    if task.state is State.CANCELLED:
        return act.cancelled
    return task.state is State.FAILED and (act.error is None or act.error in _names(task.error))


def recent_since(started_at: Moment | None, now: Moment) -> Moment:
    """Items that ended at this moment or later count as recent."""
    return max(now - RECENT, started_at or 0)


def checked_lane(max_running: int) -> int:
    if max_running < 0:
        raise InvalidInput(
            f"max_running={max_running} is not a number of batches",
            why="it is the number of batches that a lane runs at a time; 0 starts none",
            fix="use 0 or more",
        )
    return max_running


def _names(error: TaskError | None) -> Collection[str]:
    return () if error is None else (error.category, error.type, error.fingerprint)


def _index(act: Move | Resume, own: Place, others: Sequence[Place]) -> int | None:
    """The place among the others that it goes before; None: it stays."""
    before = sum(place < own for place in others)
    queued = [index for index, place in enumerate(others) if place.status is BatchStatus.QUEUED]
    match act:
        case Resume(at="top") | Move(to="top"):
            return 0 if before else None
        case Resume(at="bottom") | Move(to="bottom"):
            return len(others) if before < len(others) else None
        case Move(to="up"):
            return max((index for index in queued if index < before), default=None)
        case Move(to="down"):
            return next((index + 1 for index in queued if index >= before), None)
        case Move(to="before"):
            return next((index for index, place in enumerate(others) if place.id == act.before), None)
    return None


def _rank_at(index: int, others: Sequence[Place]) -> int | None:
    if index == 0:
        return others[0].rank - STEP
    if index == len(others):
        return others[-1].rank + STEP
    low, high = others[index - 1].rank, others[index].rank
    return (low + high) // 2 if high - low > 1 else None


def _group(status: BatchStatus) -> int:
    if status in IN_SLOT:
        return 0
    return 1 if status is BatchStatus.QUEUED else 2
