"""Takes secrets out of what a worker tells about a task that did not complete."""

from collections.abc import Callable

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
)
from pitboss.model.task import TaskError

Hidden = Callable[[str], str]


def hidden_in(outcome: Outcome, hidden: Hidden) -> Outcome:
    """The outcome with every text in it made safe. A result is the handler's own and stays as it is."""
    match outcome:
        case Failed() | TimedOut() | Rotated():
            return msgspec.structs.replace(outcome, error=_safe(outcome.error, hidden))
        case Retry() | Crashed():
            error = outcome.error
            return outcome if error is None else msgspec.structs.replace(outcome, error=_safe(error, hidden))
        case Snooze() | Cancelled():
            return msgspec.structs.replace(outcome, reason=hidden(outcome.reason))
        case Completed() | Released():
            return outcome


def _safe(error: TaskError, hidden: Hidden) -> TaskError:
    return msgspec.structs.replace(
        error, message=hidden(error.message), traceback=hidden(error.traceback), type=hidden(error.type)
    )
