"""One sentence about how a store is doing, the same wherever it is asked: command line, dashboard, health check."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.queue import Queue
from pitboss.model.states import State

LATE: Span = 300 * SECOND
LATELY: Span = 3600 * SECOND
_MANY_FAILURES = 10
_SHOWN = 3


class Health(StrEnum):
    """`attention` is for a person to look at; `unhealthy` fails a health check."""

    HEALTHY = "healthy"
    ATTENTION = "attention"
    UNHEALTHY = "unhealthy"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict is made of. `held` counts held tasks by handler, `late` those that waited longer than `LATE`,
    `completed` and `failed` the tasks put within `LATELY`."""

    queues: Sequence[Queue] = ()
    managers: int = 0
    held: Mapping[str, int] = {}
    late: int = 0
    completed: int = 0
    failed: int = 0

    def total(self, *states: State) -> int:
        return sum(queue.counts.get(state, 0) for queue in self.queues for state in states)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`cause` is stable and may be matched by programs; `queue` is the one it is about, if it is about one."""

    health: Health
    cause: str
    sentence: str
    queue: str | None = None


def verdict(facts: Facts) -> Verdict:
    """The worst that is true."""
    for look in (_no_manager, _held, _failing, _paused, _late, _failed):
        found = look(facts)
        if found is not None:
            return found
    running, waiting = facts.total(State.RUNNING), facts.total(State.PENDING, State.SCHEDULED)
    said = f"Healthy: {_count(facts.managers, 'manager')}, {running} running, {waiting} waiting."
    return Verdict(health=Health.HEALTHY, cause="healthy", sentence=said)


def _no_manager(facts: Facts) -> Verdict | None:
    if facts.managers:
        return None
    waiting = facts.total(State.HELD, State.SCHEDULED, State.PENDING)
    rest = f"; {_count(waiting, 'task')} {'waits' if waiting == 1 else 'wait'}." if waiting else ", and nothing waits."
    return Verdict(health=Health.UNHEALTHY, cause="no-manager", sentence=f"No manager is running{rest}")


def _held(facts: Facts) -> Verdict | None:
    if not facts.held:
        return None
    names = sorted(facts.held, key=lambda name: -facts.held[name])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    total = sum(facts.held.values())
    said = f"{_count(total, 'task')} held because no worker knows the handler: {', '.join(names[:_SHOWN])}{more}."
    return Verdict(health=Health.UNHEALTHY, cause="held", sentence=said)


def _failing(facts: Facts) -> Verdict | None:
    ended = facts.failed + facts.completed
    if facts.failed < _MANY_FAILURES or facts.failed * 2 < ended:
        return None
    said = f"{facts.failed} of {ended} tasks of the last {spoken(LATELY)} failed."
    return Verdict(health=Health.UNHEALTHY, cause="failing", sentence=said)


def _paused(facts: Facts) -> Verdict | None:
    paused = [queue for queue in facts.queues if queue.paused and queue.waiting]
    if not paused:
        return None
    worst = max(paused, key=lambda queue: queue.waiting)
    said = f'Queue "{worst.name}" is paused, and {_count(worst.waiting, "task")} wait in it.'
    return Verdict(health=Health.ATTENTION, cause="paused", sentence=said, queue=worst.name)


def _late(facts: Facts) -> Verdict | None:
    if not facts.late:
        return None
    said = f"{_count(facts.late, 'task')} waited longer than {spoken(LATE)}: there is more work than workers."
    return Verdict(health=Health.ATTENTION, cause="late", sentence=said)


def _failed(facts: Facts) -> Verdict | None:
    if not facts.failed:
        return None
    said = f"{_count(facts.failed, 'task')} of the last {spoken(LATELY)} failed; the rest goes on."
    return Verdict(health=Health.ATTENTION, cause="failed", sentence=said)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
