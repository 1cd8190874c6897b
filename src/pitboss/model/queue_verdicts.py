"""The verdict if tasks of a queue wait: why they cannot start, and whether it grows, stands still or is paused."""

from collections.abc import Iterator
from math import ceil, inf
from typing import NamedTuple

import msgspec

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.fleet import hanging, worker_pools
from pitboss.model.gates import how_paused
from pitboss.model.pool_state import PoolState
from pitboss.model.queue import is_reserved
from pitboss.model.queue_forecast import QueueForecast, Trend
from pitboss.model.states import State
from pitboss.model.store_reading import LATE
from pitboss.model.text import counted
from pitboss.model.verdict import Health, Verdict
from pitboss.model.verdict_case import Case, Found, counted_tasks, serves, tasks_wait
from pitboss.model.waiting import Trouble

# Causes that operators made on purpose.
BY_OPERATORS = ("queue-paused", "pool-paused", "draining", "disabled", "no-workers")
# A queue that has grown or stood still for this long is worth a look.
_LASTING: Span = 120 * SECOND
# Members that are back within this time are waited for.
_BACK_SOON: Span = 60 * SECOND


def cannot_start(case: Case) -> Found | None:
    """Unhealthy if a whole queue stands still, and no operator wanted that."""
    reading = case.reading
    found = [(_health_of(one, case), one) for one in reading.troubles if one.cause != "queue-paused"]
    if not case.managers or not found:
        return None
    health, worst = max(found, key=lambda one: (one[0] is Health.UNHEALTHY, one[1].stuck, one[1].tasks))
    forecast = reading.forecasts.get(worst.queue)
    pool = _sent_away(worst, forecast)
    verdict = Verdict(
        health=health,
        cause=worst.cause,
        sentence=f"{worst.said[:1].upper()}{worst.said[1:]}.",
        queue=worst.queue,
        next=worst.helps[0] if worst.helps else f"pitboss why {worst.example}",
        why="" if pool is None else pool.said,
        since=forecast.since if forecast is not None else None,
        until=pool.back[0] if pool is not None and pool.back else None,
        until_note="" if pool is None else _come_back(pool),
    )
    return Found(verdict, frozenset([worst.queue]), (*worst.helps, f"pitboss why {worst.example}"))


def _sent_away(trouble: Trouble, forecast: QueueForecast | None) -> PoolState | None:
    """The resource pool whose members failed or were refused, if tasks wait for that."""
    pool = forecast.pool if forecast is not None else None
    return pool if pool is not None and pool.away and trouble.cause in ("cooling", "blacklisted") else None


def _come_back(pool: PoolState) -> str:
    """How many members are back first, and when the last one is."""
    if not pool.back:
        return "its members are enabled again or replaced"
    first, last = pool.back[0], pool.back[-1]
    number = sum(one <= first + SECOND for one in pool.back)
    later = f"; the last one {spoken(last - first)} later" if last > first + SECOND else ""
    return f"when {number:,} of {pool.total:,} {'is' if number == 1 else 'are'} back{later}"


def _health_of(trouble: Trouble, case: Case) -> Health:
    """Unhealthy if the whole queue stands still, and no operator wanted that."""
    queues = case.reading.queues
    running = next((one.counts.get(State.RUNNING, 0) for one in queues if one.name == trouble.queue), 0)
    still = trouble.all and not running and trouble.cause not in BY_OPERATORS
    return Health.UNHEALTHY if still and (trouble.stuck or _unusable(trouble, case)) else Health.ATTENTION


def _unusable(trouble: Trouble, case: Case) -> bool:
    """Whether no member of its resource pool can be used, and none is back soon."""
    pool = _sent_away(trouble, case.reading.forecasts.get(trouble.queue))
    return pool is not None and not pool.usable and (not pool.back or pool.back[0] - case.now > _BACK_SOON)


def growing(case: Case) -> Found | None:
    """A queue whose backlog grows or stands still for a while: told by what limits it."""
    reading = case.reading
    troubled = {one.queue for one in reading.troubles}
    found = [
        (name, one)
        for name, one in reading.forecasts.items()
        if not is_reserved(name) and name not in troubled and _lasts(one, case.now)
    ]
    if not found:
        return None
    name, worst = max(found, key=lambda one: (bool(one[1].pool and one[1].pool.away), one[1].backlog))
    if worst.trend is Trend.GROWS:
        said = f'Queue "{name}" grows by {_per_time(worst.inflow - worst.outflow)} and will not drain.'
    else:
        quiet = spoken(case.now - (worst.since or case.now))
        said = f'No task of queue "{name}" has ended for {quiet}, and {tasks_wait(worst.backlog)}.'
    sharing = frozenset(queue for queue, one in found if one.pinch == worst.pinch)
    pool = worst.pool
    if pool is not None and pool.away and worst.pinch.cause == "resources":
        return _short_of(case, name, worst, pool, said, sharing)
    hangs = hanging(case.managers, name, case.now) if worst.trend is Trend.STALLED else None
    code = {"workers": "grows"}.get(worst.pinch.cause, worst.pinch.cause or "stalled")
    verdict = Verdict(
        health=Health.ATTENTION,
        cause=code if worst.trend is Trend.GROWS else "stalled",
        sentence=said,
        queue=name,
        why=worst.pinch.said if hangs is None else hangs.said,
        since=worst.since,
        until=worst.until,
    )
    if hangs is not None:
        return Found(verdict, sharing, (f"pitboss tasks list '{hangs.filter}'", f"pitboss queues show {name}"))
    wanted = _wanted(case, name, worst) if worst.pinch.cause == "workers" else None
    if wanted is not None and wanted.said:
        verdict = msgspec.structs.replace(verdict, why=f"{verdict.why}; {wanted.said}")
    return Found(verdict, sharing, (*_helps(name, worst, wanted), f"pitboss queues show {name}"))


def _lasts(one: QueueForecast, now: Moment) -> bool:
    since = one.since is not None and now - one.since >= _LASTING
    if one.trend is Trend.STALLED:
        # A rate or a rest that ends by itself is the normal course of things. Without a known worker, tasks are late.
        return since and one.until is None and one.pinch.cause not in ("rate", "not-ready")
    return since and one.trend is Trend.GROWS


def _short_of(case: Case, name: str, worst: QueueForecast, pool: PoolState, said: str, queues: frozenset[str]) -> Found:
    """Too few members of a resource pool can be used."""
    needs = ceil(worst.inflow * pool.usable / worst.outflow) if worst.outflow else 1
    back = pool.enough(min(needs, pool.total))
    need = f"; the queue needs {needs:,} and has {pool.usable:,}" if pool.usable < needs <= pool.total else ""
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="resources",
        sentence=said,
        queue=name,
        why=f"{pool.said}{need}",
        since=worst.since,
        until=None if back is None else back[0],
        until_note="" if back is None else f"when {back[1]:,} more {'is' if back[1] == 1 else 'are'} back",
    )
    commands = (
        f"pitboss resources show {pool.name}",
        f"pitboss resources reset {pool.name} --all",
        f"pitboss queues pause {name}",
    )
    return Found(verdict, queues, commands)


def _helps(name: str, worst: QueueForecast, wanted: "_Wanted | None") -> Iterator[str]:
    """What makes a queue faster, by what limits it."""
    if worst.pinch.cause == "rate":
        yield f"pitboss queues limit {name} --rate …"
    elif worst.pinch.cause == "resources" and worst.pool is not None:
        yield f"pitboss resources add {worst.pool.name} NAME …"
    elif wanted is not None:
        if wanted.size > wanted.now:
            yield f"pitboss pools scale {wanted.pool} {wanted.size}"
        if wanted.scarce:
            yield f"pitboss resources add {wanted.scarce} NAME …"


class _Wanted(NamedTuple):
    """How many workers a pool has in each manager, and how many the rates need. `scarce` is the resource pool that
    allows no more."""

    pool: str
    now: int
    size: int
    said: str = ""
    scarce: str = ""


def _wanted(case: Case, name: str, worst: QueueForecast) -> _Wanted | None:
    """The size of the worker pool with which as much ends as comes."""
    serving = [view for view in worker_pools(case.managers) if serves(view, name) and not view.pool.only]
    if not serving:
        return None
    pool = serving[0].pool
    own = [view for view in serving if view.pool.name == pool.name]
    managers, ready = len(own), max(1, sum(len(view.ready) for view in own))
    present = max(ceil(ready / managers), *(view.pool.wanted for view in own))
    if not worst.outflow:
        return _Wanted(pool.name, present, present + 1)
    size = max(present, ceil(ready * worst.inflow / worst.outflow / managers))
    each = f" in each of {managers} managers" if managers > 1 else ""
    said = f"{counted(size, 'worker')}{each} would keep up"
    allowed, most = _fed(worst, ready, pool.concurrency), max(view.pool.most for view in own)
    if allowed is not None and worst.pool is not None and ceil(allowed / managers) < size:
        cut, scarce = max(present, ceil(allowed / managers)), worst.pool.name
        return _Wanted(
            pool.name, present, cut, f"{said}, but its {worst.pool.total:,} {scarce} are enough for {cut}", scarce
        )
    if min(view.pool.least for view in own) < most < size:
        return _Wanted(pool.name, present, max(present, most), f"{said}, but the pool has at most {most}")
    return _Wanted(pool.name, present, size, said)


def _fed(worst: QueueForecast, ready: int, seats: int) -> int | None:
    """How many workers its resource pool keeps busy; None: any number."""
    pool, bounds = worst.pool, list[float]()
    if pool is None:
        return None
    if pool.at_once is not None and seats:
        bounds.append(pool.at_once / seats)
    if pool.steady and worst.outflow:
        bounds.append(ready * pool.steady / worst.outflow)
    least = min(bounds, default=inf)
    return None if least == inf else ceil(least)


def _per_time(rate: float) -> str:
    """ "12 tasks a second"."""
    amount, name = next(
        ((rate * unit, name) for unit, name in ((1, "second"), (60, "minute")) if round(rate * unit)),
        (rate * 3600, "hour"),
    )
    return f"{counted(max(1, round(amount)), 'task')} {'an' if name == 'hour' else 'a'} {name}"


def paused_queue(case: Case) -> Found | None:
    paused = [queue for queue in case.reading.queues if queue.paused and queue.waiting]
    if not paused or case.of_sources:
        return None
    worst = max(paused, key=lambda queue: queue.waiting)
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="paused",
        sentence=f'Queue "{worst.name}" is paused, and {tasks_wait(worst.waiting)} in it.',
        queue=worst.name,
        why=f"it {how_paused(worst, case.now)}",
        since=worst.paused_at,
        until_note="it is resumed",
    )
    return Found(verdict, frozenset(queue.name for queue in paused))


def late_tasks(case: Case) -> Found | None:
    reading = case.reading
    if not reading.late.number or case.of_sources:
        return None
    oldest = reading.oldest
    other = oldest is not None and oldest.shut is not None and oldest.shut.name != "slots"
    why = oldest.sentence if oldest is not None and other else "there is more work than workers"
    said = f"{counted_tasks(reading.late)} waited longer than {spoken(LATE)}: {why}."
    late = {name: one for name, one in reading.forecasts.items() if (one.waited or 0) > LATE}
    clears = max((one.likely for one in late.values() if one.likely is not None), default=None)
    sure = clears is not None and all(one.likely is not None for one in late.values())
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="late",
        sentence=said,
        why=next((one.pinch.said for one in late.values() if one.pinch.said), ""),
        until=case.now + clears if clears is not None and sure else None,
        until_note="when the queue has cleared" if sure else "",
    )
    return Found(verdict, frozenset(late))
