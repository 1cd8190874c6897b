"""What alerts are judged by: one frozen value of facts, and the conditions, which are functions of it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from pitboss.model.alert import AlertRule, Severity, Subject
from pitboss.model.alert_counters import Counters
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.pool import size, spoken_size
from pitboss.model.text import counted

_MINUTE: Span = 60 * SECOND
STORE_AWAY = "store_away"
# Fewer crashes or failures than this within the window are no rate.
_LEAST_CRASHES = 3
_LEAST_FAILURES = 10
# Handlers that are small are not told: they vary by more than they cost.
_LEAST_RUN: Span = SECOND // 2
_LEAST_MEMORY = size("64MB")
CRASHES, FAILED, COMPLETED = "crashes", "failed", "completed"


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A worker pool in all managers. `full` has each worker that exceeds the soft memory limit, with its share of it;
    `fullest` is the largest share of all."""

    workers: int = 0
    full: dict[str, float] = {}
    fullest: float | None = None


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue. `waited` is how long its oldest due task has waited; items of batches, which are as old as their batch,
    are left out. None: that is not known. `unserved`: due tasks that no live worker can take."""

    paused: bool = False
    waited: Span | None = 0
    unserved: int = 0


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A resource pool: how many members are enabled, and how many of these can be used, now or after a rest."""

    enabled: int = 0
    usable: int = 0


class HandlerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A handler: the median of how long its tasks ran, and of the bytes that they needed, lately and usually. None: too
    few were measured."""

    run: tuple[Span, Span] | None = None
    memory: tuple[int, int] | None = None


class AlertFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A store and its managers at one look. `late` says by how much schedules are overdue, `answered` how long the
    store took for a small write. `free` and `refusing` are those of `StoreUsage`. `totals` are what `Counters` counts:
    by kind, subject and origin."""

    now: Moment
    pools: dict[str, PoolFacts] = {}
    queues: dict[str, QueueFacts] = {}
    handlers: dict[str, HandlerFacts] = {}
    resources: dict[str, MemberFacts] = {}
    late: dict[str, Span] = {}
    answered: Span | None = None
    free: int | None = None
    refusing: str | None = None
    totals: Mapping[tuple[str, str, str], int] = {}


Measure = Callable[[AlertFacts, Counters, AlertRule], Iterator[Subject]]
Unit = Literal["share", "time", "size", "number", "times"]


class Condition(NamedTuple):
    """What can be asked: `measure` gives the subjects, whose values have this unit; `about` is what they are. The
    other fields are what a rule has that does not say otherwise. `below`: too little is what is wrong."""

    measure: Measure
    unit: Unit
    threshold: float
    lasting: Span
    severity: Severity
    says: str
    about: str
    below: bool = False

    def rule(self, name: str, condition: str) -> AlertRule:
        return AlertRule(
            name=name,
            condition=condition,
            threshold=self.threshold,
            lasting=self.lasting,
            severity=self.severity,
            below=self.below,
        )

    def shown(self, value: float) -> str:
        """A value of this condition for people."""
        match self.unit:
            case "share":
                return f"{value:.0%}"
            case "time":
                return _time(round(value))
            case "size":
                return spoken_size(round(value))
            case "times":
                return f"{value:.1f} times"
        return f"{value:,.0f}"


def _crash_rate(facts: AlertFacts, counters: Counters, rule: AlertRule) -> Iterator[Subject]:
    """Each crash is followed by a start: of all workers that were alive in the window, how many crashed."""
    for name, pool in facts.pools.items():
        crashes = counters.within(CRASHES, name, rule.window)
        rate = crashes / (pool.workers + crashes) if crashes >= _LEAST_CRASHES else 0.0
        text = f'worker pool "{name}": {counted(crashes, "crash", "crashes")} in {spoken(rule.window)}'
        yield Subject(name, rate, f"{text}, {rate:.0%} of its starts", counters.latest(CRASHES, name))


def _memory(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, pool in facts.pools.items():
        if not pool.full and pool.fullest is not None:
            yield Subject(name, pool.fullest, f'worker pool "{name}": {pool.fullest:.0%} of the soft memory limit')
        for worker, share in pool.full.items():
            text = f"worker {worker} uses {share:.0%} of its soft memory limit, and is not replaced"
            yield Subject(worker, share, text, of=name)


def _delay(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, queue in facts.queues.items():
        if not queue.paused and queue.waited is not None:
            yield Subject(name, queue.waited, f'queue "{name}": its oldest due task has waited {_time(queue.waited)}')


def _oldest(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, queue in facts.queues.items():
        if queue.waited is not None:
            paused = "; it is paused" if queue.paused else ""
            text = f'queue "{name}": its oldest due task has waited {_time(queue.waited)}{paused}'
            yield Subject(name, queue.waited, text)


def _dead_letters(facts: AlertFacts, counters: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name in dict.fromkeys((*facts.queues, *counters.subjects(FAILED))):
        failed = counters.within(FAILED, name, rule.window)
        ended = failed + counters.within(COMPLETED, name, rule.window)
        rate = failed / ended if failed >= _LEAST_FAILURES else 0.0
        text = f'queue "{name}": {failed:,} of {counted(ended, "task")} failed in {spoken(rule.window)}'
        yield Subject(name, rate, text, counters.latest(FAILED, name))


def _usable(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, pool in facts.resources.items():
        if pool.enabled:
            text = f'resource pool "{name}": {pool.usable:,} of {counted(pool.enabled, "member")} can be used'
            yield Subject(name, pool.usable / pool.enabled, text)


def _late(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, late in facts.late.items():
        yield Subject(name, late, f'schedule "{name}" is late by {_time(late)}')


def _no_worker(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, queue in facts.queues.items():
        waiting = counted(queue.unserved, "due task")
        yield Subject(name, queue.unserved, f'queue "{name}": {waiting}, and no live worker that takes them')


def _slow_handlers(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, one in facts.handlers.items():
        if one.run is not None:
            lately, usually = one.run
            text = f'handler "{name}": its tasks run for {_time(lately)}, usually for {_time(usually)}'
            yield Subject(name, _times(lately, usually, _LEAST_RUN), text)


def _large_handlers(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    for name, one in facts.handlers.items():
        if one.memory is not None:
            lately, usually = one.memory
            text = f'handler "{name}": its tasks need {spoken_size(lately)} of memory, usually {spoken_size(usually)}'
            yield Subject(name, _times(lately, usually, _LEAST_MEMORY), text)


def _times(lately: int, usually: int, least: int) -> float:
    return lately / max(usually, 1) if lately >= least else 0.0


def _slow(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    if facts.answered is not None:
        yield Subject("store", facts.answered, f"the store took {_time(facts.answered)} for a small write")


def _disk(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    if facts.refusing is not None:
        yield Subject("store", 0, f"the store refuses new tasks: {facts.refusing}")
    elif facts.free is not None:
        yield Subject("store", facts.free, f"the store's disk has {spoken_size(facts.free)} left")


def _away(facts: AlertFacts, _: Counters, rule: AlertRule) -> Iterator[Subject]:
    """Told by each manager itself: without a store there is no leader."""
    yield from ()


def _time(value: Span) -> str:
    if value >= SECOND:
        return spoken(value - value % SECOND)
    return f"{value / 1000:.0f}ms" if value else "0s"


_LOW, _MEDIUM, _HIGH = Severity.LOW, Severity.MEDIUM, Severity.HIGH
# Each is also the name of a rule that is on unless settings say otherwise.
CONDITIONS: Mapping[str, Condition] = {
    "worker_crash_rate": Condition(
        _crash_rate, "share", 0.1, 0, _HIGH, "the share of a worker pool's starts that ended in a crash", "worker pool"
    ),
    "memory_usage": Condition(
        _memory, "share", 1.0, 2 * _MINUTE, _MEDIUM, "a worker's memory, as a share of its soft limit", "worker pool"
    ),
    "processing_delay": Condition(
        _delay,
        "time",
        5 * _MINUTE,
        0,
        _LOW,
        "how long the oldest due task of a queue that is not paused has waited",
        "queue",
    ),
    "oldest_wait": Condition(
        _oldest,
        "time",
        60 * _MINUTE,
        0,
        _MEDIUM,
        "how long the oldest due task of a queue has waited, paused or not",
        "queue",
    ),
    "dead_letter_rate": Condition(
        _dead_letters, "share", 0.1, 0, _MEDIUM, "the share of a queue's ended tasks that failed for good", "queue"
    ),
    "resource_usable": Condition(
        _usable,
        "share",
        0.5,
        5 * _MINUTE,
        _MEDIUM,
        "the share of a resource pool's members that can be used",
        "resource pool",
        True,
    ),
    "late_schedule": Condition(
        _late, "time", _MINUTE, 30 * SECOND, _MEDIUM, "by how much a schedule is late", "schedule"
    ),
    "no_worker": Condition(
        _no_worker, "number", 0, _MINUTE, _HIGH, "how many due tasks of a queue no live worker can take", "queue"
    ),
    "slow_handler": Condition(
        _slow_handlers,
        "times",
        3.0,
        2 * _MINUTE,
        _LOW,
        "how many times as long as usual the tasks of a handler run",
        "handler",
    ),
    "large_handler": Condition(
        _large_handlers,
        "times",
        3.0,
        2 * _MINUTE,
        _LOW,
        "how many times as much memory as usual the tasks of a handler need",
        "handler",
    ),
    "store_slow": Condition(
        _slow, "time", SECOND, _MINUTE, _MEDIUM, "how long the store takes for a small write", "store"
    ),
    "disk": Condition(_disk, "size", size("1GB"), 0, _HIGH, "how much space the store's disk has left", "store", True),
    STORE_AWAY: Condition(
        _away, "time", 30 * SECOND, 0, _HIGH, "how long the store has not answered a manager", "store"
    ),
}
