"""Operations: bulk acts on tasks that are stored with their progress, so that they survive the process that began them.

An operation walks through the tasks by id, oldest first, in portions. Each portion is one act: choose, do it, and move
the cursor. A task is touched at most once: the next one has a greater id, and only what matched when the operation
began counts, so tasks that fail again or are put meanwhile are left alone.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.limits import Window
from pitboss.model.matching import matches
from pitboss.model.queue import Changed
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Task

OperationId = str
# A portion of at most n tasks reads at most this many times n: what does not match must not hold up writers either.
READ_PER_TASK: Final = 20
# Failures of an operation's tasks are counted up to this number.
FAILURES_COUNTED: Final = 20_000
_REFUSED_KEPT: Final = 20
# With a rate, a portion is what the rate allows in this time, so that failures stop the next one soon.
_PORTION_SECONDS: Final = 0.5
# After a portion that could not be done, the next one waits.
_TROUBLED: Final[Span] = 10 * SECOND


class Verb(StrEnum):
    """What an operation does to each task."""

    RETRY = "retry"
    CANCEL = "cancel"
    DISCARD = "discard"


class OperationStatus(StrEnum):
    """`stopped`: too many of its tasks failed again. `cancelled`: by an operator."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


_STATES: Final = {
    Verb.RETRY: frozenset({State.FAILED, State.CANCELLED}),
    Verb.CANCEL: frozenset(State) - FINISHED,
    Verb.DISCARD: FINISHED,
}


# Stores find the tasks of these states by their ids.
WALKED: Final = frozenset({State.FAILED, State.CANCELLED})


class NewOperation(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to which tasks. `matched` is what the caller counted before, for its progress; `more`: at least that
    many. `rate` spreads the tasks evenly; its slowest window counts. `reason` is stored with cancelled tasks."""

    id: OperationId
    verb: Verb
    wanted: Filter
    by: str | None = None
    reason: str = ""
    keep_attempts: bool = False
    matched: int | None = None
    more: bool = False
    rate: tuple[Window, ...] = ()
    stop_on_failures: int | None = None


class Operation(NewOperation, frozen=True, kw_only=True):
    """An operation with its progress.

    `done` tasks were changed, `asked` are running ones that were asked to stop, and `refused` could not be changed (the
    first of them are `refused_tasks`): a retried one whose unique key another task has, or one that must be kept.
    `failed_again` counts the retried tasks that have failed since, if only one of several attempts (`FAILURES_COUNTED`
    at most). `cursor` is the last id that was looked at, `next_at` the earliest moment of the next portion. `why` says
    why it ended early, or why its last portion could not be done.
    """

    began: Moment
    status: OperationStatus = OperationStatus.RUNNING
    done: int = 0
    asked: int = 0
    refused: int = 0
    refused_tasks: tuple[TaskId, ...] = ()
    failed_again: int = 0
    cursor: str = ""
    next_at: Moment = 0
    ended_at: Moment | None = None
    why: str | None = None

    @property
    def watched(self) -> bool:
        """Whether tasks that fail again are told apart: not if they keep the attempts that they had."""
        return self.verb is Verb.RETRY and not self.keep_attempts

    @property
    def states(self) -> frozenset[State]:
        """The states of the tasks that it is about."""
        return self.wanted.states() & _STATES[self.verb]

    def counts_in(self, task: Task) -> bool:
        """Whether the task matched when the operation began, as far as it still shows."""
        if task.state not in self.states or not matches(self.wanted, task, self.began):
            return False
        if self.verb is Verb.CANCEL:
            return task.created_at <= self.began and not task.cancel_asked
        return task.finished_at is not None and task.finished_at <= self.began

    def may_advance(self, cursor: str, now: Moment) -> bool:
        """Whether the next portion is due, for a performer that knows this cursor."""
        return self.status is OperationStatus.RUNNING and self.cursor == cursor and self.next_at <= now

    def allowed(self, limit: int) -> int:
        """How many tasks the next portion may have."""
        return min(limit, max(1, int(_per_second(self.rate) * _PORTION_SECONDS))) if self.rate else limit


class OperationChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator changes; UNSET leaves the rate as it is, and an empty one is no rate. `trouble` comes from a
    performer: why a portion could not be done."""

    cancel: bool = False
    trouble: str = ""
    by: str | None = None
    rate: tuple[Window, ...] | msgspec.UnsetType = msgspec.UNSET


def begun(new: NewOperation, now: Moment) -> Operation:
    """The operation as it is stored first; `InvalidInput` if it makes no sense."""
    if new.stop_on_failures is not None and (new.verb is not Verb.RETRY or not new.rate or new.keep_attempts):
        raise InvalidInput(
            "stopping on failures needs a retry at a rate, which starts the attempts anew",
            why="without a rate, most tasks are retried before the first can fail again",
            fix="give a rate too, such as 10/s",
        )
    return Operation(**msgspec.structs.asdict(new), began=now)


def advanced(
    operation: Operation, found: Sequence[TaskId], seen: TaskId | None, allowed: int, changed: Changed, now: Moment
) -> Operation:
    """After a portion. `found` are the first tasks that count, one more than allowed if there is one; the allowed ones
    were `changed`. `seen` is the id up to which it read; None: to the end."""
    chosen, more = found[:allowed], len(found) > allowed
    over = seen is None and not more
    cursor = chosen[-1] if more else seen or (chosen[-1] if chosen else operation.cursor)
    spent = lasts(operation.rate, len(chosen)) if operation.rate else 0
    return replace(
        operation,
        cursor=cursor,
        done=operation.done + changed.changed,
        asked=operation.asked + changed.asked,
        refused=operation.refused + len(changed.refused),
        refused_tasks=(*operation.refused_tasks, *changed.refused)[:_REFUSED_KEPT],
        next_at=max(operation.next_at, now) + spent if spent else operation.next_at,
        status=OperationStatus.DONE if over else operation.status,
        ended_at=now if over else None,
        why=None,
    )


def too_many_failed(operation: Operation, failed: int, now: Moment) -> Operation | None:
    """The operation stopped, if too many of its tasks failed again."""
    most = operation.stop_on_failures
    if most is None or failed < most:
        return None
    why = f"{failed:,} of its tasks failed again"
    return replace(operation, status=OperationStatus.STOPPED, ended_at=now, failed_again=failed, why=why)


def changed_operation(operation: Operation | None, change: OperationChange, now: Moment) -> Operation:
    """What becomes of it. One that has ended stays as it is; `NotFound` if there is none."""
    if operation is None:
        raise NotFound(
            "there is no such operation",
            why="it was never in this store, or it ended long ago and was forgotten",
            fix="pitboss operations list shows the operations",
        )
    if operation.status is not OperationStatus.RUNNING:
        return operation
    if change.cancel:
        why = f"cancelled by {change.by}" if change.by else "cancelled"
        return replace(operation, status=OperationStatus.CANCELLED, ended_at=now, why=why)
    if change.trouble:
        return replace(operation, why=change.trouble, next_at=now + _TROUBLED)
    if change.rate is msgspec.UNSET:
        return operation
    first = now + lasts(change.rate, 1) if change.rate else now
    return replace(operation, rate=change.rate, next_at=min(operation.next_at, first))


def lasts(rate: Sequence[Window], tasks: int) -> Span:
    """How long this number of tasks takes at this rate."""
    return round(tasks * SECOND / _per_second(rate))


def _per_second(rate: Sequence[Window]) -> float:
    return min(window.count / window.per for window in rate) * SECOND
