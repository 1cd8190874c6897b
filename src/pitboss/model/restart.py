"""When a worker that died is started again, and when that is given up."""

import msgspec

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.pool import PoolSpec, RestartPolicy

LONGEST_DELAY: Span = 300 * SECOND
QUIET: Span = 60 * SECOND


class Record(msgspec.Struct, frozen=True):
    """The crashes of one place that still count: `recent` within the window, `streak` without a quiet time between."""

    recent: tuple[Moment, ...] = ()
    streak: int = 0


class RestartDecision(msgspec.Struct, frozen=True):
    """Start again after `delay`; None is never, until somebody says so."""

    delay: Span | None
    record: Record
    why: str = ""


def after_end(
    record: Record, spec: PoolSpec, *, started_at: Moment, now: Moment, clean: bool, critical: bool
) -> RestartDecision:
    """What follows an end that nobody asked for. `clean` is exit code 0; `critical` was ended by the manager, as unfit.

    The first crash waits for the pool's delay, each further one twice as long, until one has lived quietly for a
    minute. A worker that was unfit is replaced at once, the first time. More crashes than `max_restarts` within the
    window end it: a worker that cannot live is a fact for people, not a loop.
    """
    if clean and spec.restart is RestartPolicy.ON_FAILURE:
        return RestartDecision(
            None, record, "it ended by itself with exit code 0, and the pool restarts on failure only"
        )
    recent = (*(one for one in record.recent if now - one < spec.restart_window), now)
    streak = 1 if now - started_at >= max(QUIET, spec.restart_delay) else record.streak + 1
    after = Record(recent, streak)
    if len(recent) > spec.max_restarts:
        return RestartDecision(None, after, f"it crashed {len(recent)} times; {spec.max_restarts} restarts are allowed")
    if critical and streak == 1:
        return RestartDecision(0, after)
    return RestartDecision(backoff(spec.restart_delay, streak), after)


def backoff(first: Span, streak: int) -> Span:
    """How long to wait after so many failures in a row."""
    return min(LONGEST_DELAY, first << min(streak - 1, 30))
