"""Every outcome, as the transition that `decide` makes of it for a first attempt."""

import msgspec

from pitboss.model.outcome import (
    Cancelled,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Released,
    Retry,
    Rotated,
    Snooze,
    TimedOut,
    Transition,
    decide,
    progressed,
)
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.testing.conformance.bench import BROKEN, STEADY

_FATAL = msgspec.structs.replace(BROKEN, retryable=False)
_OUTCOMES: dict[str, Outcome] = {
    "completed": Completed('"r"'),
    "failed": Failed(_FATAL),
    "retried": Retry(after=1_000_000, error=BROKEN),
    "snoozed": Snooze(1_000_000, "not now"),
    "rotated": Rotated(BROKEN),
    "released": Released(started=True),
    "cancelled": Cancelled("given up"),
    "crashed": Crashed(alone=True),
    "timed_out": TimedOut(TaskError(category="timeout", message="too long")),
}
OUTCOMES = (*_OUTCOMES, "progress")
ONCE = tuple(_OUTCOMES)
FINAL = ("completed", "failed", "cancelled")
WAITING_AGAIN = ("retried", "snoozed", "rotated", "released", "crashed", "timed_out")


def transition_for(name: str, claim: Claim, now: int, follow_ups: tuple[NewTask, ...] = ()) -> Transition:
    """The transition for this outcome. Outcomes that finish the task have follow-ups."""
    if name == "progress":
        return progressed(50, "half")
    transition = decide(claim, _OUTCOMES[name], STEADY, now, 0.5)
    return msgspec.structs.replace(transition, follow_ups=follow_ups if name in FINAL else ())
