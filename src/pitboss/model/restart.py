"""When a worker that died is started again, and when no more."""

import msgspec

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.pool import PoolSpec, RestartPolicy

LONGEST_DELAY: Span = 300 * SECOND
QUIET: Span = 60 * SECOND


class Record(msgspec.Struct, frozen=True):
    """The crashes of one worker slot that count: `recent` within the window, `streak` without a quiet time between."""

    recent: tuple[Moment, ...] = ()
    streak: int = 0


class RestartDecision(msgspec.Struct, frozen=True):
    """Start again after `delay`; None: not until an operator asks for it."""

    delay: Span | None
    record: Record
    why: str = ""


def after_end(
    record: Record,
    spec: PoolSpec,
    *,
    started_at: Moment,
    now: Moment,
    clean: bool,
    critical: bool,
    last: bool = False,
) -> RestartDecision:
    """What follows an unplanned end. `clean`: exit code 0; `critical`: the manager killed it because it was unhealthy;
    `last`: it had been ready, and now the pool has no live worker.

    The last worker of a pool is replaced at once, and its end does not count: nothing would run until then, and its
    code can be loaded. Only `max_restarts` 0 overrides that.

    After the first crash the restart waits for the pool's delay, after each further one twice as long, until a worker
    has run for a minute. An unhealthy worker is replaced at once, the first time. After more than `max_restarts`
    crashes within the window there are no more restarts: a person has to look.
    """
    if clean and spec.restart is RestartPolicy.ON_FAILURE:
        return RestartDecision(
            None, record, "it ended by itself with exit code 0, and the pool restarts on failure only"
        )
    if last and spec.max_restarts:
        return RestartDecision(0, record)
    recent = (*(one for one in record.recent if now - one < spec.restart_window), now)
    streak = 1 if now - started_at >= max(QUIET, spec.restart_delay) else record.streak + 1
    after = Record(recent, streak)
    if len(recent) > spec.max_restarts:
        return RestartDecision(None, after, f"it crashed {len(recent)} times; {spec.max_restarts} restarts are allowed")
    if critical and streak == 1:
        return RestartDecision(0, after)
    return RestartDecision(backoff(spec.restart_delay, streak), after)


def backoff(first: Span, streak: int) -> Span:
    """How long to wait after this many failures in a row."""
    return min(LONGEST_DELAY, first << min(streak - 1, 30))
