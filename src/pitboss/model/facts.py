"""What happened, as frozen facts for an app's hooks. Times are microseconds, as everywhere.

Best effort: a fact is what a manager saw and decided. It is not stored; what must happen is a task.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from pitboss.model.canonical import Json, from_json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Transition
from pitboss.model.states import State
from pitboss.model.task import Claim, TaskError


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that happened `at` a moment on a `host`, in a worker `pool`."""

    host: str = ""
    pool: str = "default"
    at: Moment = 0

    @property
    def kind(self) -> str:
        """Its name: `task_completed` and so on."""
        return kind_of(type(self))

    @property
    def when(self) -> datetime:
        """`at` as a UTC datetime."""
        return datetime.fromtimestamp(self.at / SECOND, UTC)


class TaskFact(Fact, frozen=True, kw_only=True):
    """An attempt of a task ended. `duration` is how long the handler ran, None if that is unknown."""

    id: TaskId
    handler: str
    queue: str
    attempt: int
    params: Json = "{}"
    tags: tuple[str, ...] = ()
    parent: TaskId | None = None
    worker: str | None = None
    duration: Span | None = None

    def arguments(self) -> dict[str, Any]:
        """The task's params as Python values."""
        values: dict[str, Any] = from_json(self.params)
        return values


class TaskCompleted(TaskFact, frozen=True, kw_only=True, tag="task_completed"):
    """The handler returned."""

    result: Json | None = None

    def value(self) -> Any:
        """What the handler returned, as a Python value."""
        return None if self.result is None else from_json(self.result)


class TaskFailed(TaskFact, frozen=True, kw_only=True, tag="task_failed"):
    """The task failed for good and is a dead letter now; `reason` says why it is not retried."""

    error: TaskError | None = None
    reason: str | None = None


class TaskRetried(TaskFact, frozen=True, kw_only=True, tag="task_retried"):
    """An attempt failed, and the next one follows after `delay`."""

    error: TaskError | None = None
    delay: Span = 0


class TaskCancelled(TaskFact, frozen=True, kw_only=True, tag="task_cancelled"):
    """The handler cancelled the task, or it was cancelled from outside."""

    reason: str | None = None


class WorkerFact(Fact, frozen=True, kw_only=True):
    """Something about one worker of a pool. `pid` is 0 if there is no process."""

    worker: str
    pid: int = 0


class WorkerStarted(WorkerFact, frozen=True, kw_only=True, tag="worker_started"):
    """A worker has loaded the app and takes tasks."""


class WorkerCrashed(WorkerFact, frozen=True, kw_only=True, tag="worker_crashed"):
    """A worker ended unexpectedly. `lost` are the tasks that it ran, which run again elsewhere, but for those in
    `poisoned`: they have ended too many workers, and were set aside as failed.

    `code` is its exit code, negative for a signal; `error` says in words what is known.
    """

    error: TaskError | None = None
    code: int | None = None
    lost: tuple[TaskId, ...] = ()
    poisoned: tuple[TaskId, ...] = ()


class WorkerGivenUp(WorkerFact, frozen=True, kw_only=True, tag="worker_given_up"):
    """A worker crashed too often and stays down: its state is `crashed`."""

    why: str = ""
    crashes: int = 0


class PoolScaled(Fact, frozen=True, kw_only=True, tag="pool_scaled"):
    """The wanted number of workers of a pool changed from `before` to `after`."""

    before: int
    after: int
    why: str = ""


class RestartRequired(Fact, frozen=True, kw_only=True, tag="restart_required"):
    """A process beside the workers asked to be replaced, and was: the delivery process, which reaches no broker."""

    process: str
    why: str = ""


AnyFact = (
    TaskCompleted
    | TaskFailed
    | TaskRetried
    | TaskCancelled
    | WorkerStarted
    | WorkerCrashed
    | WorkerGivenUp
    | PoolScaled
    | RestartRequired
)


class HookFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one manager's hooks. `why` is set if their process stays down.

    Facts: `waiting` or being handled; `handled` so far; `dropped` because too many waited; `lost` with a process that
    died. `failed` counts hooks that raised.
    """

    pid: int = 0
    waiting: int = 0
    handled: int = 0
    failed: int = 0
    dropped: int = 0
    lost: int = 0
    restarts: int = 0
    why: str = ""


def kind_of(fact: type[Fact]) -> str:
    """The kind of a class of facts."""
    return str(fact.__struct_config__.tag)


TASK_KINDS = frozenset(kind_of(one) for one in (TaskCompleted, TaskFailed, TaskRetried, TaskCancelled))
_FINAL_KINDS = {
    State.COMPLETED: kind_of(TaskCompleted),
    State.FAILED: kind_of(TaskFailed),
    State.CANCELLED: kind_of(TaskCancelled),
}


def task_kind(change: Transition) -> str | None:
    """The kind of fact for a settled attempt; None if the task was given back, snoozed or lost."""
    final = _FINAL_KINDS.get(change.state)
    return kind_of(TaskRetried) if final is None and change.charged else final


def task_fact(
    claim: Claim, change: Transition, *, worker: str | None, pool: str, host: str, at: Moment, ran: Span | None
) -> AnyFact | None:
    """The fact for a settled attempt; None if there is none."""
    kind = task_kind(change)
    if kind is None:
        return None
    known: dict[str, Any] = {
        "id": claim.id,
        "handler": claim.handler,
        "queue": claim.queue,
        "attempt": claim.attempt,
        "params": claim.params,
        "tags": claim.tags,
        "parent": claim.parent,
        "worker": worker,
        "pool": pool,
        "host": host,
        "at": at,
        "duration": ran,
    }
    match change.state:
        case State.COMPLETED:
            return TaskCompleted(**known, result=change.result)
        case State.FAILED:
            return TaskFailed(**known, error=change.error, reason=change.reason)
        case State.CANCELLED:
            return TaskCancelled(**known, reason=change.reason)
    return TaskRetried(**known, error=change.error, delay=change.delay or 0)
