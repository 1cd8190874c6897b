"""A task as it is put, claimed and read back. All values are frozen."""

from typing import Any

import msgspec

from pitboss.model.canonical import Json, from_json
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import InvalidInput, Refused
from pitboss.model.ids import TaskId
from pitboss.model.resource import Leased, Want
from pitboss.model.states import FINISHED, State

# Which moments of a task follow the wall clock: flags that are stored with it.
DUE_BY_WALL = 1
EXPIRES_BY_WALL = 2


class Token(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The right to write about a task: the session that claimed it, and the number of that claim.

    The claim number grows with every claim and never repeats, so a writer that was replaced is recognised by its token
    even if a release or a loss left the attempt number unchanged.
    """

    session: int
    claim: int

    def __str__(self) -> str:
        return f"{self.session}.{self.claim}"


class Unique(msgspec.Struct, frozen=True, gc=False):
    """One task per key: while that task is unfinished, or for a period after it was put, finished or not."""

    key: str
    period: Span | None = None


class NewTask(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A task to be stored. A delay counts from the store's clock; a moment is a time of the wall clock.

    Tasks with one `order_key` run one at a time, in the order in which they were put. `meta` is a JSON object that says
    where the task comes from (`model.meta`).

    `ahead`, here and below, is how far the wall clock is ahead of the store's.
    """

    id: TaskId
    handler: str
    queue: str = "default"
    params: Json = "{}"
    priority: int = 0
    run_at: Moment | None = None
    delay: Span | None = None
    unique: Unique | None = None
    max_attempts: int | None = None
    timeout: Span | None = None
    expires_at: Moment | None = None
    expires_in: Span | None = None
    tags: tuple[str, ...] = ()
    parent: TaskId | None = None
    want: Want | None = None
    order_key: str | None = None
    meta: Json | None = None

    def due(self, now: Moment, ahead: Span = 0) -> Moment | None:
        """When it may run, if that is later than now."""
        if self.delay is not None:
            return now + self.delay if self.delay > 0 else None
        return self.run_at - ahead if self.run_at is not None and self.run_at - ahead > now else None

    def expiry(self, now: Moment, ahead: Span = 0) -> Moment | None:
        if self.expires_in is not None:
            return now + self.expires_in
        return None if self.expires_at is None else self.expires_at - ahead

    @property
    def by_wall(self) -> int | None:
        """Which of its moments follow the wall clock, for `lifecycle.rebased`."""
        due = DUE_BY_WALL if self.run_at is not None and self.delay is None else 0
        return due | (EXPIRES_BY_WALL if self.expires_at is not None and self.expires_in is None else 0) or None


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator changes in waiting tasks: another priority, tags that they get, and tags that they lose. A field
    that is UNSET stays as it is."""

    priority: int | msgspec.UnsetType = msgspec.UNSET
    tag: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = [*self.tag, *self.untag]
        if len(set(named)) < len(named):
            raise InvalidInput(
                "a tag is named twice", why=", ".join(sorted(named)), fix="name it once, to add or remove it"
            )
        if not named and self.priority is msgspec.UNSET:
            raise InvalidInput("no change was given", why="there is nothing to do", fix="name a priority or a tag")

    def applied_to(self, task: "Task") -> "Task":
        """The task after it; the task itself if it is so already."""
        kept = tuple(tag for tag in task.tags if tag not in self.untag)
        tags = (*kept, *(tag for tag in self.tag if tag not in kept))
        priority = task.priority if self.priority is msgspec.UNSET else self.priority
        if (tags, priority) == (task.tags, task.priority):
            return task
        return msgspec.structs.replace(task, tags=tags, priority=priority)


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The answer to a put: the new task, or the existing one that it met (same id or same unique key)."""

    id: TaskId
    created: bool
    state: State
    reason: str | None = None


class TaskError(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why an attempt failed. Retry rules go by `category`; `fingerprint` groups failures of the same cause."""

    category: str
    message: str
    type: str = ""
    traceback: str = ""
    fingerprint: str = ""
    retryable: bool = True


class Claim(msgspec.Struct, frozen=True, gc=False, kw_only=True, array_like=True):
    """A task given to a session, with everything needed to run it and to decide its next state.

    `due_at` is when it was due to start (`lifecycle.due_at`).
    """

    id: TaskId
    token: Token
    handler: str
    queue: str
    params: Json
    attempt: int
    priority: int = 0
    max_attempts: int | None = None
    timeout: Span | None = None
    losses: int = 0
    crashes: int = 0
    created_at: Moment = 0
    claimed_at: Moment = 0
    expires_at: Moment | None = None
    parent: TaskId | None = None
    tags: tuple[str, ...] = ()
    slot: int = 0
    leased: Leased | None = None
    batch: str | None = None
    rotations: int = 0
    claim_expires_at: Moment | None = None
    meta: Json | None = None
    due_at: Moment | None = None

    @property
    def alone(self) -> bool:
        """A task that was lost before runs by itself, so that a crash blames no other task."""
        return self.losses > 0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A stored task.

    `resource` is the member ("pool/name") that its last claim held or holds. `tried` are the names of members that were
    reported unusable for it, `rotations` how often it was handed on because of that without spending an attempt.
    `claim_lasts`, `claim_expires_at` and `claim_key` are those of its last claim, if that has a time limit of its own.
    `partition` is its key, if its queue has partitions.
    """

    id: TaskId
    handler: str
    queue: str
    state: State
    params: Json
    priority: int = 0
    created_at: Moment = 0
    run_at: Moment | None = None
    attempts: int = 0
    max_attempts: int | None = None
    timeout: Span | None = None
    expires_at: Moment | None = None
    unique_key: str | None = None
    tags: tuple[str, ...] = ()
    parent: TaskId | None = None
    reason: str | None = None
    progress: int | None = None
    note: str | None = None
    result: Json | None = None
    error: TaskError | None = None
    outcome: str | None = None
    session: int | None = None
    claim: int = 0
    worker: str | None = None
    started_at: Moment | None = None
    finished_at: Moment | None = None
    losses: int = 0
    crashes: int = 0
    cancel_asked: bool = False
    batch: str | None = None
    want: Want | None = None
    resource: str | None = None
    tried: tuple[str, ...] = ()
    rotations: int = 0
    claim_lasts: Span | None = None
    claim_expires_at: Moment | None = None
    claim_key: str | None = None
    order_key: str | None = None
    meta: Json | None = None
    partition: str | None = None

    def value(self) -> Any:
        """The result as a Python value."""
        return None if self.result is None else from_json(self.result)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a task: the session and worker, when it ran, and its outcome. Listed in the order of claims."""

    claim: int
    attempt: int
    outcome: str
    started_at: Moment
    ended_at: Moment
    session: int | None = None
    worker: str | None = None
    error: TaskError | None = None


def last_run(task: Task) -> Attempt | None:
    """The run that finished the task, which is not in its history but in its own fields."""
    if task.state not in FINISHED or task.started_at is None or task.finished_at is None:
        return None
    return Attempt(
        claim=task.claim,
        attempt=task.attempts,
        outcome=task.outcome or "",
        started_at=task.started_at,
        ended_at=task.finished_at,
        session=task.session,
        worker=task.worker,
        error=task.error,
    )


def not_waiting(task: Task) -> Refused:
    """The error for a change of a task that does not wait."""
    return Refused(
        f"task {task.id} ({task.handler}) is {task.state} and cannot be changed",
        why="priority and tags of a task can be changed while it waits: held, scheduled or pending",
        fix="wait until it waits again, or leave it"
        if task.state is State.RUNNING
        else "retry it first, then change it",
    )
