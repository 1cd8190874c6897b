"""Settling: the request, the store's answer, and the pure rules that decide the answer and what is written.

The memory and SQLite engines call `effect` and `lost`. PostgreSQL, and SQLite for plain completions, have the same rule
in SQL; `tests/conformance/test_settle_rule.py` proves each copy equal to it.
"""

from typing import NamedTuple

import msgspec

from pitboss.model.batch import BatchId, BatchStatus
from pitboss.model.batching import HELD_BY_BATCH, Waiting, waits
from pitboss.model.canonical import Json
from pitboss.model.duration import Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.member_health import tried_after
from pitboss.model.outcome import Transition
from pitboss.model.outdone import SentAway
from pitboss.model.policy import MAX_CRASHES
from pitboss.model.resource import Report, UseEnd
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt, Task, TaskError, Token


class Settlement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One transition to write under one token. `ran` is how long the handler ran, for the attempt's record.

    `queue`, `handler`, `batch` and `resource` (its id) are the claim's, if the caller knows them: they save the store a
    read, and tell it what to lock first. `report` says how the resource behaved; None says nothing about it. `use_end`
    ends the open use of the resource; None: it is unknown when its request was made.
    """

    id: TaskId
    token: Token
    transition: Transition
    worker: str | None = None
    ran: Span | None = None
    queue: str | None = None
    batch: BatchId | None = None
    resource: str | None = None
    report: Report | None = None
    use_end: UseEnd | None = None
    handler: str | None = None


class SettleAnswer(NamedTuple):
    """Applied, or refused with the reason: the writer's token is stale and it must drop the task.

    `away` are members that the task failed with before, and that were sent away now because it has succeeded.
    """

    applied: bool
    why: str | None = None
    away: tuple[SentAway, ...] = ()


APPLIED = SettleAnswer(True)
STALE_TASK = SettleAnswer(False, "the task does not exist")
STALE_SESSION = SettleAnswer(False, "the session is over")
STALE_CLAIM = SettleAnswer(False, "the task is not running under this claim")
STALE_TIME = SettleAnswer(False, "the time limit of the claim is over")


# What a task becomes whose claims by remote workers ran out too often.
RAN_OUT_TOO_OFTEN = f"poison: the claims of {MAX_CRASHES} remote workers ran out while they ran it"
RAN_OUT = TaskError(
    category="poison",
    message="the remote worker gave no sign of life before the claim's time limit: it probably died",
    type="ClaimRanOut",
    fingerprint="claim-ran-out",
    retryable=False,
)


class StoredTask(msgspec.Struct, array_like=True):
    """The fields of a task that the rules need, for an engine that does not read whole tasks."""

    state: State
    session: int | None
    claim: int
    attempts: int
    losses: int
    crashes: int
    cancel_asked: bool
    outcome: str | None
    reason: str | None
    run_at: Moment | None
    started_at: Moment | None
    resource: str | None
    tried: tuple[str, ...]
    rotations: int
    worker: str | None
    claim_lasts: Span | None
    claim_expires_at: Moment | None


class Progress(NamedTuple):
    """The fields of a task that a report of progress changes."""

    progress: int | None
    note: str | None
    claim_expires_at: Moment | None

    def applied_to(self, task: Task) -> Task:
        """Without a percentage only the time limit of the claim changes."""
        if self.progress is None:
            return msgspec.structs.replace(task, claim_expires_at=self.claim_expires_at)
        return msgspec.structs.replace(
            task, progress=self.progress, note=self.note, claim_expires_at=self.claim_expires_at
        )


class ClaimEnd(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields of a task whose claim ends; UNSET ones stay as they are. `run` is added to the task's history."""

    state: State
    reason: str | None
    outcome: str
    session: int | None
    attempts: int
    losses: int
    crashes: int
    run_at: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    tried: tuple[str, ...]
    rotations: int
    cancel_asked: bool = False
    result: Json | msgspec.UnsetType | None = msgspec.UNSET
    error: TaskError | msgspec.UnsetType | None = msgspec.UNSET
    worker: str | msgspec.UnsetType | None = msgspec.UNSET
    run: Attempt | None = None

    def applied_to(self, task: Task) -> Task:
        """The whole task as it is after this."""
        changes = {name: value for name in _TASK_FIELDS if (value := getattr(self, name)) is not msgspec.UNSET}
        return msgspec.structs.replace(task, **changes)


_TASK_FIELDS = tuple(name for name in ClaimEnd.__struct_fields__ if name != "run")


class Effect(NamedTuple):
    """The answer to a settlement, and what to write for it; `change` None writes nothing."""

    answer: SettleAnswer
    change: Progress | ClaimEnd | None = None


def effect(
    task: Task | StoredTask | None, settlement: Settlement, *, alive: bool, batch: BatchStatus | None, now: Moment
) -> Effect:
    """What a settlement does to its task. `task` is None if it does not exist, `batch` if it belongs to none.

    `alive`: the session of the settlement's token is alive. Follow-up tasks, and giving the resource back, are the
    engine's to do in the same act, if the change is a `ClaimEnd`.
    """
    token, transition = settlement.token, settlement.transition
    if task is None:
        return Effect(STALE_TASK)
    same_claim = task.session == token.session and task.claim == token.claim
    running = task.state is State.RUNNING
    if same_claim and not running and task.outcome == transition.outcome:
        return Effect(APPLIED)
    limited = same_claim and running and task.claim_expires_at is not None
    if not alive and not limited:
        return Effect(STALE_SESSION)
    if not same_claim or not running:
        return Effect(STALE_CLAIM)
    if not lives(task, alive, now):
        return Effect(STALE_TIME)
    if transition.state is State.RUNNING:
        return Effect(APPLIED, _progress(task, transition, now))
    return Effect(APPLIED, _ended(task, settlement, batch, now))


def lives(task: Task | StoredTask, alive: bool, now: Moment) -> bool:
    """Whether the claim of a running task lasts: as long as its own time limit, or without one as its session."""
    return alive if task.claim_expires_at is None else task.claim_expires_at > now


def lost(task: Task | StoredTask, *, batch: BatchStatus | None, now: Moment) -> ClaimEnd:
    """The end of a claim whose session is dead or whose time limit is over.

    Back to waiting without an attempt spent, or cancelled if asked. A time limit that ran out counts as a crash: the
    remote worker ran nothing else under that claim. Too many of them make the task failed.
    """
    ran_out = task.claim_expires_at is not None
    if ran_out and not task.cancel_asked and task.crashes + 1 >= MAX_CRASHES:
        return _poisoned(task, now)
    place = waits(batch, known=True, run_at=None, now=now)
    over = task.cancel_asked
    return ClaimEnd(
        state=State.CANCELLED if over else place.state,
        reason=task.reason if over else place.reason or task.reason,
        outcome="lost",
        session=None,
        attempts=task.attempts + over,
        losses=task.losses + 1,
        crashes=task.crashes + ran_out,
        run_at=task.run_at,
        started_at=task.started_at if over else None,
        finished_at=now if over else None,
        tried=task.tried,
        rotations=task.rotations,
        run=None if over else _run(task, "lost", task.started_at, now, task.worker),
    )


def _poisoned(task: Task | StoredTask, now: Moment) -> ClaimEnd:
    return ClaimEnd(
        state=State.FAILED,
        reason=RAN_OUT_TOO_OFTEN,
        outcome="lost",
        session=None,
        attempts=task.attempts + 1,
        losses=task.losses + 1,
        crashes=task.crashes + 1,
        run_at=task.run_at,
        started_at=task.started_at,
        finished_at=now,
        tried=task.tried,
        rotations=task.rotations,
        error=RAN_OUT,
    )


def _progress(task: Task | StoredTask, transition: Transition, now: Moment) -> Progress:
    """Every report extends a claim with a time limit by that limit. Without a percentage it changes nothing else."""
    until = None if task.claim_lasts is None else now + task.claim_lasts
    return Progress(transition.progress, transition.note, until)


def _ended(task: Task | StoredTask, settlement: Settlement, batch: BatchStatus | None, now: Moment) -> ClaimEnd:
    transition = settlement.transition
    place = _place(task, transition, batch)
    over, completed = place.state in FINISHED, place.state is State.COMPLETED
    started = task.started_at if settlement.ran is None else now - settlement.ran
    later = transition.state is State.SCHEDULED and not over and transition.delay
    run = None
    if transition.recorded and not over:
        run = _run(task, transition.outcome, started, now, settlement.worker, transition.error)
    return ClaimEnd(
        state=place.state,
        reason=place.reason,
        outcome=transition.outcome,
        session=task.session,
        attempts=task.attempts + (over or transition.charged),
        losses=task.losses + transition.lost,
        crashes=task.crashes + transition.crashed,
        run_at=now + later if later else task.run_at,
        started_at=started if over else None,
        finished_at=now if over else None,
        tried=() if completed else _tried(task, settlement.report),
        rotations=0 if completed else task.rotations + transition.rotated,
        result=transition.result,
        error=transition.error if over or transition.error is not None else msgspec.UNSET,
        worker=settlement.worker,
        run=run,
    )


def _place(task: Task | StoredTask, transition: Transition, batch: BatchStatus | None) -> Waiting:
    """Where the task goes: as was decided, unless a cancellation was asked for, or its batch does not run."""
    stopped = batch is not None and batch is not BatchStatus.RUNNING
    if (task.cancel_asked or stopped) and transition.state in WAITING:
        return Waiting(State.CANCELLED, task.reason) if task.cancel_asked else HELD_BY_BATCH
    return Waiting(transition.state, transition.reason)


def _tried(task: Task | StoredTask, report: Report | None) -> tuple[str, ...]:
    if report is None or task.resource is None:
        return task.tried
    return tried_after(task.tried, task.resource.partition("/")[2], report.outcome)


def _run(
    task: Task | StoredTask,
    outcome: str,
    started: Moment | None,
    now: Moment,
    worker: str | None = None,
    error: TaskError | None = None,
) -> Attempt:
    """A run that ends now without finishing the task; the run that finishes it is in the task's own fields."""
    return Attempt(
        claim=task.claim,
        attempt=task.attempts + 1,
        outcome=outcome,
        started_at=started or now,
        ended_at=now,
        session=task.session,
        worker=worker,
        error=error,
    )
