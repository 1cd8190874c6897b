"""Tasks that start, pause, progress and end together. Batches of one lane queue up, and are promoted in their order."""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED, State
from pitboss.model.task import NewTask

BatchId = str
# The gap between two ranks, so that a batch can move between two others and only its own row changes.
STEP: Final = 1 << 20
# The recent speed of a batch is measured over this span.
RECENT: Final[Span] = 300 * SECOND


class BatchStatus(StrEnum):
    """A batch is `pausing` or `cancelling` while some of its items still run."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    DONE = "done"
    DONE_WITH_ERRORS = "done_with_errors"


OVER: Final = frozenset({BatchStatus.CANCELLED, BatchStatus.DONE, BatchStatus.DONE_WITH_ERRORS})
# What counts against a lane's `max_running`.
IN_SLOT: Final = frozenset({BatchStatus.RUNNING, BatchStatus.PAUSING, BatchStatus.CANCELLING})


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch to be stored. `data` is the user's own; `on_complete` is put when it has ended.

    `paused`: it waits to be resumed, and not for its turn.
    """

    id: BatchId
    name: str = ""
    lane: str = "default"
    data: Json = "{}"
    by: str | None = None
    paused: bool = False
    on_complete: NewTask | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A stored batch. Its progress is the number of its items by state, and nothing else.

    `position` is 0 while it has a slot, its place in line while it is queued (1 is next), None otherwise. `recent`
    items ended in the last `RECENT`, or since it was started if that is less. `queues` are those of its items. `run` is
    1, and one more each time an ended batch was queued again.
    """

    id: BatchId
    name: str = ""
    lane: str = "default"
    status: BatchStatus = BatchStatus.QUEUED
    data: Json = "{}"
    by: str | None = None
    rank: int = 0
    position: int | None = None
    created_at: Moment = 0
    started_at: Moment | None = None
    finished_at: Moment | None = None
    reason: str | None = None
    on_complete: NewTask | None = None
    counts: dict[State, int] = {}
    queues: tuple[str, ...] = ()
    recent: int = 0
    run: int = 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def finished(self) -> int:
        return sum(self.counts.get(state, 0) for state in FINISHED)

    @property
    def left(self) -> int:
        return self.total - self.finished


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """The line in which batches wait: at most `max_running` of them have a slot at a time."""

    name: str
    max_running: int = 1
    running: int = 0
    queued: int = 0


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """No more items start, and running ones may end. It keeps its results and its place in line, and frees its slot."""

    reason: str = ""


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """Queue it again at its old place, or at an end of the line; it continues with its unfinished items."""

    at: Literal["place", "top", "bottom"] = "place"


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Run now, whether or not its lane has a free slot."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Waiting items are cancelled, running ones are asked to stop; results are kept. No item starts after the first
    call, however many calls it takes."""

    reason: str = ""


class Move(msgspec.Struct, frozen=True, tag="move"):
    """Change its place in line. Batches that have a slot do not move."""

    to: Literal["top", "up", "down", "bottom", "before"]
    before: BatchId | None = None


class Requeue(msgspec.Struct, frozen=True, tag="requeue"):
    """Failed items (or cancelled ones too) wait again, and an ended batch is queued again, at the end of its lane.

    `error`: only failures whose category, exception type or fingerprint is this.
    """

    error: str | None = None
    cancelled: bool = False
    keep_attempts: bool = False


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Remove it and its items. Only if it has ended, or if none of its items runs and `force` is set; then it is paused
    first, so that no item starts between two portions."""

    force: bool = False


BatchAct = Pause | Resume | Start | Cancel | Move | Requeue | Delete


class BatchChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The batch as it is now (None: deleted), how many items this call changed, and whether to repeat it for more."""

    batch: Batch | None
    changed: int = 0
    refused: tuple[TaskId, ...] = ()
    more: bool = False


_LIVE: Final = frozenset(BatchStatus) - OVER - {BatchStatus.CANCELLING}
# Asking again for what is already done is allowed: a caller that got no answer repeats.
_ALLOWED: Final[dict[type[BatchAct], frozenset[BatchStatus]]] = {
    Pause: _LIVE,
    Resume: _LIVE,
    Start: _LIVE,
    Cancel: _LIVE | {BatchStatus.CANCELLING, BatchStatus.CANCELLED},
    Move: frozenset({BatchStatus.QUEUED, BatchStatus.PAUSED}),
    Requeue: frozenset(BatchStatus) - {BatchStatus.CANCELLING},
    Delete: frozenset(BatchStatus),
}


def check_act(batch: Batch, act: BatchAct) -> None:
    """Refuse an act that the batch's status does not allow. Every engine calls this, so that all refuse the same."""
    if batch.status not in _ALLOWED[type(act)]:
        raise _refused(batch, act, f"only possible while it is {_either(_ALLOWED[type(act)])}")
    if isinstance(act, Delete) and batch.status not in OVER:
        if not act.force:
            raise _refused(batch, act, "it has not ended; cancel it first, or use force")
        if batch.counts.get(State.RUNNING):
            raise _refused(batch, act, "some of its items are running; cancel or pause it first, and wait for them")


def check_before(batch: Batch, other: Batch | None) -> None:
    """Refuse a move before a batch that does not wait in the same lane."""
    if other is None or other.lane != batch.lane or other.status not in _ALLOWED[Move] or other.id == batch.id:
        raise InvalidInput(
            f"batch {batch.id} cannot be moved before {'nothing' if other is None else other.id}",
            why="a batch can only move before another one that waits in the same lane",
            fix="name a queued or paused batch of its lane, or move it to the top or to the bottom",
        )


def no_such_batch(batch: BatchId) -> NotFound:
    return NotFound(
        f'there is no batch "{batch}"',
        why="it was never created, or it was deleted",
        fix="list the batches for their ids",
    )


def _refused(batch: Batch, act: BatchAct, why: str) -> InvalidInput:
    return InvalidInput(
        f"batch {batch.id} is {batch.status}: {type(act).__name__.lower()} is not possible",
        why=why,
        fix="look at its status and its items first",
    )


def _either(statuses: frozenset[BatchStatus]) -> str:
    return " or ".join(status for status in BatchStatus if status in statuses)
