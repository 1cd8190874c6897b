"""The outcome of a claim, and the pure rule that turns it into the task's next state."""

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.policy import MAX_CRASHES, Policy
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, TaskError


class Completed(msgspec.Struct, frozen=True, gc=False, tag="completed"):
    """The handler returned."""

    result: Json | None = None
    follow_ups: tuple[NewTask, ...] = ()


class Failed(msgspec.Struct, frozen=True, gc=False, tag="failed"):
    """The handler raised. The error and the policy decide whether it is tried again."""

    error: TaskError
    follow_ups: tuple[NewTask, ...] = ()


class Retry(msgspec.Struct, frozen=True, gc=False, tag="retry"):
    """The handler asked to be tried again, after a delay of its own choice or the policy's. Costs an attempt."""

    after: Span | None = None
    error: TaskError | None = None


class Snooze(msgspec.Struct, frozen=True, gc=False, tag="snooze"):
    """Not now: run it again later. Costs no attempt."""

    delay: Span
    reason: str = ""


class Rotated(msgspec.Struct, frozen=True, gc=False, tag="rotated"):
    """Its resource could not be used now, and the task is not to blame: try another one. Costs no attempt."""

    error: TaskError


class Cancelled(msgspec.Struct, frozen=True, gc=False, tag="cancelled"):
    """The handler gave up for good, or obeyed a cancellation."""

    reason: str = ""


class Released(msgspec.Struct, frozen=True, gc=False, tag="released"):
    """Given back unfinished: a drain, a deploy, a buffer that waited too long, a missing key. Costs no attempt.

    `delay` and `reason` are for a cause that will still be there at once."""

    started: bool = False
    delay: Span = 0
    reason: str = ""


# Neither the task nor the member is to blame. It waits, so that it does not come back at once.
NO_KEY = Released(delay=5 * SECOND, reason="waiting for the key of its resource's secrets")


class Crashed(msgspec.Struct, frozen=True, gc=False, tag="crashed"):
    """Its worker died. Only a crash while the task was alone in its worker counts against the task."""

    alone: bool
    error: TaskError | None = None


class TimedOut(msgspec.Struct, frozen=True, gc=False, tag="timed_out"):
    """It did not end within its time limit."""

    error: TaskError


Outcome = Completed | Failed | Retry | Snooze | Rotated | Cancelled | Released | Crashed | TimedOut


class Transition(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What settling writes. `state` running: the task stays claimed, only its progress changes.

    A transition to a finished state always counts as an attempt; one back to waiting only if it is `charged`.
    """

    state: State
    outcome: str
    delay: Span | None = None
    result: Json | None = None
    error: TaskError | None = None
    reason: str | None = None
    charged: bool = False
    lost: bool = False
    crashed: bool = False
    rotated: bool = False
    recorded: bool = True
    progress: int | None = None
    note: str | None = None
    follow_ups: tuple[NewTask, ...] = ()


def decide(claim: Claim, outcome: Outcome, policy: Policy, now: Moment, luck: float) -> Transition:
    """The task's next state. Pure: `now` is the store's time, `luck` in [0, 1) spreads the backoff."""
    match outcome:
        case Completed(result, follow_ups):
            return Transition(
                state=State.COMPLETED, outcome="completed", result=result, charged=True, follow_ups=follow_ups
            )
        case Failed() | TimedOut() | Retry():
            return _tried(claim, outcome, policy, now, luck)
        case Snooze(delay, reason):
            return _later("snoozed", delay, reason=reason or None)
        case Rotated(error):
            return _rotated(claim, error, policy, now, luck)
        case Cancelled(reason):
            return Transition(state=State.CANCELLED, outcome="cancelled", reason=reason or None, charged=True)
        case Released(started, delay, reason):
            return Transition(
                state=State.SCHEDULED if delay else State.PENDING,
                outcome="released",
                delay=delay or None,
                reason=reason or None,
                recorded=started,
            )
        case Crashed(alone, error):
            return _crashed(claim, alone, error)


def progressed(percent: int | None = None, note: str | None = None) -> Transition:
    """A fenced progress report: the task stays claimed. Without a percentage it is only a sign of life."""
    return Transition(state=State.RUNNING, outcome="progress", progress=percent, note=note, recorded=False)


def _tried(claim: Claim, outcome: Failed | TimedOut | Retry, policy: Policy, now: Moment, luck: float) -> Transition:
    """An attempt is over and there may be another."""
    match outcome:
        case Failed(error, follow_ups):
            return _failed(claim, error, "failed", policy, now, luck, follow_ups=follow_ups)
        case TimedOut(error):
            return _failed(claim, error, "timed_out", policy, now, luck)
        case Retry(after, wish):
            error = wish or TaskError(category="retry", message="the handler asked to be tried again")
            return _failed(claim, error, "retried", policy, now, luck, after=after)


def _failed(
    claim: Claim,
    error: TaskError,
    outcome: str,
    policy: Policy,
    now: Moment,
    luck: float,
    *,
    after: Span | None = None,
    follow_ups: tuple[NewTask, ...] = (),
) -> Transition:
    rule = policy.rule(error.category)
    wanted = error.retryable if rule.retry is None else rule.retry
    # A task's own limit beats its handler's; a rule for this kind of error may only tighten it.
    limit = policy.max_attempts if claim.max_attempts is None else claim.max_attempts
    limit = limit if rule.max_attempts is None else min(limit, rule.max_attempts)
    delay = after if after is not None else (rule.backoff or policy.backoff).delay(claim.attempt, luck)
    reason = _end_reason(claim, wanted, limit, now + delay)
    if reason is None:
        return _later(outcome, delay, error=error, charged=True)
    return Transition(
        state=State.FAILED, outcome=outcome, error=error, reason=reason, charged=True, follow_ups=follow_ups
    )


def _end_reason(claim: Claim, wanted: bool, limit: int, again_at: Moment) -> str | None:
    if not wanted:
        return "not retryable"
    if claim.attempt >= limit:
        return "attempts used up"
    if claim.expires_at is not None and again_at >= claim.expires_at:
        return "expires before its next attempt"
    return None


def _crashed(claim: Claim, alone: bool, error: TaskError | None) -> Transition:
    if not alone:
        return Transition(state=State.PENDING, outcome="lost", error=error, lost=True)
    if claim.crashes + 1 < MAX_CRASHES:
        return Transition(state=State.PENDING, outcome="crashed", error=error, lost=True, crashed=True)
    evidence = error or TaskError(category="crash", message="the worker process died while it ran this task alone")
    return Transition(
        state=State.FAILED,
        outcome="crashed",
        error=msgspec.structs.replace(evidence, category="poison", retryable=False),
        reason=f"poison: it killed its worker {MAX_CRASHES} times while alone in it",
        lost=True,
        crashed=True,
    )


def _rotated(claim: Claim, error: TaskError, policy: Policy, now: Moment, luck: float) -> Transition:
    if claim.rotations < policy.max_rotations:
        return Transition(state=State.PENDING, outcome="rotated", error=error, rotated=True)
    return _failed(claim, error, "failed", policy, now, luck)


def _later(
    outcome: str,
    delay: Span,
    *,
    reason: str | None = None,
    error: TaskError | None = None,
    charged: bool = False,
) -> Transition:
    state = State.SCHEDULED if delay > 0 else State.PENDING
    return Transition(state=state, outcome=outcome, delay=delay, reason=reason, error=error, charged=charged)


def poisons(claim: Claim, outcome: Outcome | None, together: int) -> bool:
    """Whether a task that was lost with its worker, as one of `together`, is set aside instead of running again."""
    how = lost_outcome(outcome, together)
    return isinstance(how, Crashed) and _crashed(claim, how.alone, how.error).state is State.FAILED


def lost_outcome(outcome: Outcome | None, together: int) -> Outcome:
    """Only the crash of a task that ran alone counts against it."""
    if outcome is None:
        return Crashed(alone=together == 1)
    if isinstance(outcome, Crashed):
        return Crashed(alone=outcome.alone and together == 1, error=outcome.error)
    return outcome
