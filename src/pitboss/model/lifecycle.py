"""What each act makes of a task: the task before, the task after. The end of a claim is in `model.settlement`.

An engine that stores whole tasks writes what these functions return. SQL engines say the same in SQL.
"""

from typing import NamedTuple

from msgspec.structs import replace

from pitboss.model.batching import HELD_BY_BATCH, HELD_IN_ORDER, Waiting, waits
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.resource import Leased
from pitboss.model.session import Slot
from pitboss.model.states import State
from pitboss.model.task import DUE_BY_WALL, EXPIRES_BY_WALL, Claim, NewTask, Task, Token

MAX_RECORDED_RUNS = 100
# A wall clock that differs by less was not set: it is only corrected a little.
STEP: Span = SECOND


class KeyHold(NamedTuple):
    """The task that has a unique key: until a moment, or until the task is finished (None)."""

    task: TaskId
    until: Moment | None = None

    def lasts(self, now: Moment) -> bool:
        return self.until is None or self.until > now

    def ends_with(self, task: Task) -> bool:
        """True if the end of this task frees the key."""
        return self == (task.id, None)


def key_hold(new: NewTask, now: Moment) -> KeyHold:
    """How a new task with a unique key holds that key."""
    period = new.unique.period if new.unique else None
    return KeyHold(new.id, None if period is None else now + period)


def created(
    new: NewTask,
    now: Moment,
    *,
    known: bool,
    batch: str | None = None,
    ahead: Span = 0,
    behind: bool = False,
    partition: str | None = None,
) -> Task:
    """The task as it is first stored. `known`: its handler is registered. An item of a batch is held until drawn, and a
    task `behind` an unfinished one with its order key until that one has ended. `partition` is its key."""
    due = new.due(now, ahead)
    place = HELD_IN_ORDER if behind else waits(None, known=known, run_at=due, now=now)
    place = place if batch is None else HELD_BY_BATCH
    return Task(
        id=new.id,
        handler=new.handler,
        queue=new.queue,
        state=place.state,
        params=new.params,
        priority=new.priority,
        created_at=now,
        run_at=due,
        max_attempts=new.max_attempts,
        timeout=new.timeout,
        expires_at=new.expiry(now, ahead),
        unique_key=new.unique.key if new.unique else None,
        tags=new.tags,
        parent=new.parent,
        reason=place.reason,
        batch=batch,
        want=new.want,
        order_key=new.order_key,
        meta=new.meta,
        partition=partition,
    )


def stepped(before: Span, ahead: Span) -> bool:
    """Whether the wall clock was set, judged by how far it was and is ahead of the store's clock."""
    return abs(ahead - before) > STEP


def rebased(task: Task, by_wall: int, step: Span) -> Task:
    """An unfinished task after the wall clock was set ahead by `step`. Only its first run was given a time."""
    due, expiry = task.run_at, task.expires_at
    if by_wall & DUE_BY_WALL and task.claim == 0 and due is not None:
        due -= step
    if by_wall & EXPIRES_BY_WALL and expiry is not None:
        expiry -= step
    return replace(task, run_at=due, expires_at=expiry)


def moved(task: Task, place: Waiting) -> Task:
    """Waiting elsewhere: released, drawn, due, or held."""
    return replace(task, state=place.state, reason=place.reason)


def claimed(task: Task, session: int, now: Moment, slot: Slot, leased: Leased | None = None) -> Task:
    """Running under the next claim number of this task."""
    return replace(
        task,
        state=State.RUNNING,
        session=session,
        claim=task.claim + 1,
        started_at=now,
        worker=None if slot.lasts is None else slot.worker or None,
        reason=None,
        progress=None,
        note=None,
        resource=None if leased is None else leased.id,
        claim_lasts=slot.lasts,
        claim_expires_at=None if slot.lasts is None else now + slot.lasts,
        claim_key=None if slot.lasts is None else slot.repeat,
    )


def still_claimed(task: Task, key: str, now: Moment) -> bool:
    """Whether a claim under this key is given again: it runs, and its time limit is not over."""
    return (
        task.state is State.RUNNING
        and task.claim_key == key
        and task.claim_expires_at is not None
        and task.claim_expires_at > now
    )


def due_at(
    created_at: Moment,
    run_at: Moment | None,
    *,
    claim: int,
    attempts: int,
    losses: int,
    rotations: int,
    batch: str | None,
) -> Moment | None:
    """When a claimed task was due to start, so that an intended delay is no wait. `claim` is the number of its claim.

    None where the store does not know: an item of a batch waited for the batch, and a task that ran before waits since
    some moment after that, unless it was given a time.
    """
    if batch is not None or attempts or losses or rotations or (claim > 1 and run_at is None):
        return None
    return created_at if run_at is None else max(created_at, run_at)


def claim_on(task: Task, session: int, slot: int, leased: Leased | None = None) -> Claim:
    """The claim on a task that `claimed` returned. `slot` is the position of its slot in the request."""
    return Claim(
        id=task.id,
        token=Token(session, task.claim),
        handler=task.handler,
        queue=task.queue,
        params=task.params,
        attempt=task.attempts + 1,
        priority=task.priority,
        max_attempts=task.max_attempts,
        timeout=task.timeout,
        losses=task.losses,
        crashes=task.crashes,
        created_at=task.created_at,
        claimed_at=task.started_at or 0,
        expires_at=task.expires_at,
        parent=task.parent,
        tags=task.tags,
        slot=slot,
        leased=leased,
        batch=task.batch,
        rotations=task.rotations,
        claim_expires_at=task.claim_expires_at,
        meta=task.meta,
        due_at=due_at(
            task.created_at,
            task.run_at,
            claim=task.claim,
            attempts=task.attempts,
            losses=task.losses,
            rotations=task.rotations,
            batch=task.batch,
        ),
    )


def is_expired(task: Task, now: Moment) -> bool:
    return task.expires_at is not None and task.expires_at <= now


def cancelled(task: Task, reason: str, now: Moment) -> Task:
    """A waiting task is over; a running one is marked, so that its session learns of it."""
    if task.state is State.RUNNING:
        return replace(task, cancel_asked=True, reason=reason)
    return replace(task, state=State.CANCELLED, reason=reason, finished_at=now)


def retried(task: Task, place: Waiting, now: Moment, *, keep_attempts: bool) -> Task:
    """A finished task waits again, due now. It keeps its history and its last error."""
    counters = {} if keep_attempts else {"attempts": 0, "losses": 0, "crashes": 0}
    return replace(
        task,
        state=place.state,
        reason=place.reason,
        run_at=now,
        expires_at=None,
        started_at=None,
        finished_at=None,
        result=None,
        tried=(),
        rotations=0,
        **counters,
    )
