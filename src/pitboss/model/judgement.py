"""The verdict on a store: of all causes that apply, the one that explains the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from pitboss.model.alert_verdict import of_alerts
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.filter import Count
from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import ManagerView, WorkerPoolView, hanging, live_managers, worker_pools
from pitboss.model.gates import how_paused
from pitboss.model.happening import Happening, pool_of
from pitboss.model.pool_state import PoolState
from pitboss.model.queue import is_reserved
from pitboss.model.queue_forecast import QueueForecast, Trend, per_time
from pitboss.model.schedule_findings import are_overdue
from pitboss.model.snapshot import WorkerFigures
from pitboss.model.source_findings import MALFORMED, SOURCES, stuck_sources
from pitboss.model.states import State
from pitboss.model.store_reading import LATE, LATELY, StoreReading
from pitboss.model.text import counted, listed
from pitboss.model.verdict import Health, Verdict, actions
from pitboss.model.waiting import Trouble

_MANY_FAILURES = 10
_NAMES_IN_VERDICT, _ALSO_SHOWN = 3, 5
# Causes that operators made on purpose.
BY_OPERATORS = ("queue-paused", "pool-paused", "draining", "disabled", "no-workers")
# What the store takes for a small read, if it is well.
SLOW: Span = SECOND
# A queue that has grown or stood still for this long is worth a look.
_LASTING: Span = 120 * SECOND
# Workers of a pool that crash this often within the time that is looked at, the last time lately.
_CRASHES, _LATELY_CRASHED = 3, 180 * SECOND
CRASHES_WITHIN: Span = 600 * SECOND
# Findings of these checks are told beside the verdict.
_TOLD = ("managers", "workers", "paused", "capacity", "keys", "releases", "http", "waiting", "schedules")
# What follows from another cause of the same queue, and is not told beside it.
_SYMPTOMS = ("late", "grows", "rate", "stalled", "workers", "memory")
_NEXT_STARTS = "when the next one is started"
_STORE_ALERTS = ("alert store_slow ", "alert disk ")
_NEXT = {
    "no-manager": ("pitboss up",),
    "no-worker": ("pitboss doctor", "pitboss logs manager"),
    "held": ("pitboss tasks list state:held",),
    "failing": ("pitboss dead list",),
    "paused": ("pitboss queues resume {queue}",),
    "late": ("pitboss tasks list state:pending",),
    "failed": ("pitboss dead list",),
    "healthy": ("pitboss tasks list",),
    "store-slow": ("pitboss doctor",),
}


class _Found(NamedTuple):
    """A cause that applies, with the queues whose waiting it explains, and the commands that help."""

    verdict: Verdict
    queues: frozenset[str] = frozenset()
    commands: tuple[str, ...] = ()


class _Case(NamedTuple):
    reading: StoreReading
    managers: Sequence[ManagerView]
    findings: Sequence[Finding]
    now: Moment

    @property
    def wrong(self) -> Finding | None:
        return next((one for one in self.findings if one.grade is Grade.PROBLEM), None)

    def serving(self, pool: str) -> frozenset[str]:
        """The queues that a worker pool serves."""
        views = [view for view in worker_pools(self.managers) if view.pool.name == pool]
        return frozenset(queue.name for queue in self.reading.queues if any(serves(view, queue.name) for view in views))


def judge(reading: StoreReading, findings: Sequence[Finding], now: Moment) -> Verdict:
    """The first cause of `_LOOKS` that applies explains the others; they are told beside it."""
    case = _Case(reading, live_managers(reading.sessions, now), findings, now)
    found = [one for look in _LOOKS if (one := look(case)) is not None]
    worst = found[0] if found else _Found(_healthy(case))
    verdict = worst.verdict
    commands = list(worst.commands) or [verdict.next] * bool(verdict.next)
    commands += [one.format(queue=verdict.queue) for one in _NEXT.get(verdict.cause, ()) if not worst.commands]
    return msgspec.structs.replace(
        _with_others(verdict, reading),
        next=verdict.next or commands[0],
        actions=actions(commands),
        also=_also(case, worst, found[1:]),
    )


def _also(case: _Case, worst: _Found, others: Sequence[_Found]) -> tuple[str, ...]:
    """Other causes, and findings, as far as they do not follow from the worst one."""
    said = [
        one.verdict.sentence
        for one in others
        if not (one.verdict.cause in _SYMPTOMS and one.queues <= worst.queues)
        and (worst.verdict.cause, one.verdict.cause) != ("failing", "failed")
        and one.verdict.cause not in ("paused", "problem", MALFORMED)
    ]
    said += [one.what for one in case.findings if one.check in _TOLD and one.grade is not Grade.OK]
    lines = dict.fromkeys(f"{one[:1].upper()}{one[1:].rstrip('.')}." for one in said if not _same(one, worst, case))
    return tuple(lines)[:_ALSO_SHOWN]


def _same(line: str, worst: _Found, case: _Case) -> bool:
    """Whether the verdict says that already."""
    verdict = worst.verdict
    whole = f"{verdict.sentence} {verdict.why}".lower()
    if line.lower().rstrip(".") in whole:
        return True
    if verdict.cause == "no-manager" and line.startswith("no manager"):
        return True
    if verdict.cause in ("no-worker", "crash-loop"):
        return line.startswith(("pool ", "worker ", "Worker pool"))
    if verdict.cause == "overdue":
        return " overdue by " in line
    named = f'queue "{verdict.queue}"'
    return verdict.queue is not None and verdict.cause == "paused" and line.startswith(named)


def _with_others(verdict: Verdict, reading: StoreReading) -> Verdict:
    """The sentence also says how many other causes keep tasks from starting."""
    if verdict.cause in ("healthy", "no-manager", SOURCES, "problem", MALFORMED, "store-slow"):
        return verdict
    others = sum(
        one.stuck and one.cause not in BY_OPERATORS and (one.queue, one.cause) != (verdict.queue, verdict.cause)
        for one in reading.troubles
    ) + (bool(reading.held) and verdict.cause != "held")
    if not others:
        return verdict
    said = f"{verdict.sentence.removesuffix('.')}; and {others} more: pitboss doctor."
    return msgspec.structs.replace(verdict, sentence=said)


def _healthy(case: _Case) -> Verdict:
    reading = case.reading
    running, paused = reading.total(State.RUNNING), reading.paused_batches
    said = f"Healthy: {counted(len(case.managers), 'manager')}, {running:,} running, {reading.waiting:,} waiting"
    if paused:
        left = sum(one.left for one in paused)
        said += f", {left:,} of them in {counted(len(paused), 'paused batch', 'paused batches')}"
    return Verdict(health=Health.HEALTHY, cause="healthy", sentence=f"{said}.")


def _store(case: _Case) -> _Found | None:
    """The store is slow, or refuses what is new: everything else follows from it."""
    alert = next((one for one in case.findings if one.check == "alerts" and one.what.startswith(_STORE_ALERTS)), None)
    took = case.reading.answered
    if took <= SLOW and alert is None:
        return None
    said = f"The store is slow: it took {spoken(took)} for a small read." if took > SLOW else ""
    told = "" if alert is None else alert.what.partition(": ")[2]
    sentence = said or f"{told[:1].upper()}{told[1:]}."
    every = frozenset(queue.name for queue in case.reading.queues)
    why = "every claim and every settlement waits for it" if not told or not said else told
    return _Found(Verdict(health=Health.UNHEALTHY, cause="store-slow", sentence=sentence, why=why), every)


def _no_worker(case: _Case) -> _Found | None:
    """A worker pool whose workers are dead on every host that has it, unless tasks tell the same of themselves."""
    reading = case.reading.local
    if any(one.cause in ("given-up", "memory-limit") for one in reading.troubles):
        return None
    views = worker_pools(case.managers)
    alive = {view.pool.name for view in views if not view.dead}
    dead = [view for view in views if view.pool.name not in alive]
    if not dead:
        return None
    pool = dead[0].pool.name
    said = f'Worker pool "{pool}" has no live worker; {next_and_waiting(reading, dead[0], case.now)}.'
    why = next((one.why for one in dead[0].workers if one.why), "its workers crashed")
    verdict = Verdict(
        health=Health.UNHEALTHY,
        cause="no-worker",
        sentence=said,
        why=why,
        until=(until := _restart(dead[0].workers)),
        until_note=_NEXT_STARTS if until else "",
    )
    commands = ("pitboss doctor", "pitboss logs manager", f"pitboss pools restart {pool}")
    return _Found(verdict, case.serving(pool), commands)


def _restart(workers: Iterable[WorkerFigures]) -> Moment | None:
    """When the next of these workers is started again."""
    return min((one.next_at for one in workers if one.next_at), default=None)


def _stuck_sources(case: _Case) -> _Found | None:
    said, fix = stuck_sources(case.reading.sessions, case.managers, case.now)
    if not said:
        return None
    return _Found(
        Verdict(health=Health.UNHEALTHY, cause=SOURCES, sentence=said, next=fix), commands=("pitboss sources",)
    )


def _no_manager(case: _Case) -> _Found | None:
    if case.managers:
        return None
    waiting = case.reading.waiting
    rest = f"; {tasks_wait(waiting)}." if waiting else ", and nothing waits."
    ends = [one.expires_at for one in case.reading.sessions if one.info.kind == "manager"]
    since = max((one for one in ends if one <= case.now), default=None)
    verdict = Verdict(health=Health.UNHEALTHY, cause="no-manager", sentence=f"No manager is running{rest}", since=since)
    return _Found(verdict, frozenset(queue.name for queue in case.reading.queues))


def _crash_loop(case: _Case) -> _Found | None:
    """Workers of a pool that crash again and again, although others are alive."""
    crashes: dict[str, list[Happening]] = {}
    for one in case.reading.crashes:
        crashes.setdefault(pool_of(one), []).append(one)
    fresh = {pool_of(one) for one in case.reading.crashes if one.at > case.now - _LATELY_CRASHED} - {""}
    number, pool = max(((sum(one.count for one in crashes[pool]), pool) for pool in fresh), default=(0, ""))
    if number < _CRASHES:
        return None
    told, times = crashes[pool], counted(number, "crash", "crashes")
    until = _restart(one for view in worker_pools(case.managers, pool) for one in view.workers)
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="crash-loop",
        sentence=f'Workers of pool "{pool}" crash again and again: {times} in {spoken(CRASHES_WITHIN)}.',
        why=max(told, key=lambda one: one.at).text,
        since=min(one.at for one in told),
        until=until,
        until_note=_NEXT_STARTS if until else "",
    )
    # Workers that end before they log have no log of their own.
    commands = ("pitboss logs manager", f"pitboss ps --pool {pool}", "pitboss activity --kind worker_crashed")
    return _Found(verdict, case.serving(pool), commands)


def _held_tasks(case: _Case) -> _Found | None:
    if not case.reading.held:
        return None
    names = listed(most_first(case.reading.held), _NAMES_IN_VERDICT)
    said = f"{held_tasks(case.reading)} held because no worker knows the handler: {names}."
    return _Found(Verdict(health=Health.UNHEALTHY, cause="held", sentence=said))


def _many_failures(case: _Case) -> _Found | None:
    within, number, failed = case.reading.ended
    if failed < _MANY_FAILURES or failed * 2 < number:
        return None
    said = f"{failed:,} of {number:,} tasks of the last {spoken(within)} failed."
    return _Found(Verdict(health=Health.UNHEALTHY, cause="failing", sentence=said, why=case.reading.failure))


def _cannot_start(case: _Case) -> _Found | None:
    """Unhealthy if a whole queue stands still, and no operator wanted that."""
    reading = case.reading
    found = [(_health_of(one, reading), one) for one in reading.troubles if one.cause != "queue-paused"]
    if not case.managers or not found:
        return None
    health, worst = max(found, key=lambda one: (one[0] is Health.UNHEALTHY, one[1].stuck, one[1].tasks))
    forecast = reading.forecasts.get(worst.queue)
    pool = forecast.pool if forecast is not None else None
    away = pool is not None and pool.away > 0 and worst.cause in ("cooling", "blacklisted")
    verdict = Verdict(
        health=health,
        cause=worst.cause,
        sentence=f"{worst.said[:1].upper()}{worst.said[1:]}.",
        queue=worst.queue,
        next=worst.helps[0] if worst.helps else f"pitboss why {worst.example}",
        why=pool.said if pool is not None and away else "",
        since=forecast.since if forecast is not None else None,
        until=pool.back[0] if pool is not None and away and pool.back else None,
        until_note="when the first of them is back" if away else "",
    )
    return _Found(verdict, frozenset([worst.queue]), (*worst.helps, f"pitboss why {worst.example}"))


def _health_of(trouble: Trouble, reading: StoreReading) -> Health:
    running = next((one.counts.get(State.RUNNING, 0) for one in reading.queues if one.name == trouble.queue), 0)
    still = trouble.stuck and trouble.all and not running and trouble.cause not in BY_OPERATORS
    return Health.UNHEALTHY if still else Health.ATTENTION


def _growing(case: _Case) -> _Found | None:
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
        said = f'Queue "{name}" grows by {per_time(worst.inflow - worst.outflow)} and will not drain.'
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
    first = () if hangs is None else (f"pitboss tasks list '{hangs.filter}'",)
    return _Found(verdict, sharing, (*first, *_helps(case, name, worst), f"pitboss queues show {name}"))


def _lasts(one: QueueForecast, now: Moment) -> bool:
    since = one.since is not None and now - one.since >= _LASTING
    if one.trend is Trend.STALLED:
        # A rate or a rest that ends by itself is the normal course of things. Without a known worker, tasks are late.
        return since and one.until is None and one.pinch.cause not in ("rate", "not-ready")
    return since and one.trend is Trend.GROWS


def _short_of(
    case: _Case, name: str, worst: QueueForecast, pool: PoolState, said: str, queues: frozenset[str]
) -> _Found:
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
    return _Found(verdict, queues, commands)


def _helps(case: _Case, name: str, worst: QueueForecast) -> Iterator[str]:
    """What makes a queue faster, by what limits it."""
    if worst.pinch.cause == "rate":
        yield f"pitboss queues limit {name} --rate …"
    elif worst.pinch.cause == "resources" and worst.pool is not None:
        yield f"pitboss resources add {worst.pool.name} NAME …"
    elif worst.pinch.cause == "workers":
        views = [view for view in worker_pools(case.managers) if serves(view, name) and not view.pool.only]
        if views:
            ready = max(1, len(views[0].ready))
            wanted = ceil(ready * worst.inflow / worst.outflow) if worst.outflow else ready + 1
            yield f"pitboss pools scale {views[0].pool.name} {max(ready + 1, wanted)}"


def _overdue(case: _Case) -> _Found | None:
    found = case.reading.schedules
    if not case.managers or found is None or not found.overdue:
        return None
    said = f"{are_overdue(found)}, although a manager runs."
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="overdue",
        sentence=said,
        next="pitboss logs manager",
        why=f"no manager leads, or the leading one cannot follow: {listed(found.overdue, _NAMES_IN_VERDICT)}",
        since=case.now - found.late_by,
    )
    return _Found(verdict, commands=("pitboss logs manager", "pitboss schedules list"))


def _of_sources(case: _Case) -> bool:
    """Work that does not even arrive is worse than tasks that failed or wait for long."""
    return case.wrong is not None and case.wrong.check == SOURCES


def _paused_queue(case: _Case) -> _Found | None:
    paused = [queue for queue in case.reading.queues if queue.paused and queue.waiting]
    if not paused or _of_sources(case):
        return None
    worst = max(paused, key=lambda queue: queue.waiting)
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="paused",
        sentence=f'Queue "{worst.name}" is paused, and {tasks_wait(worst.waiting)} in it.',
        queue=worst.name,
        why=f"it {how_paused(worst, case.now)}",
        since=worst.paused_at,
        until_note="until it is resumed",
    )
    return _Found(verdict, frozenset(queue.name for queue in paused))


def _late_tasks(case: _Case) -> _Found | None:
    reading = case.reading
    if not reading.late.number or _of_sources(case):
        return None
    oldest = reading.oldest
    other = oldest is not None and oldest.shut is not None and oldest.shut.name != "slots"
    why = oldest.sentence if oldest is not None and other else "there is more work than workers"
    said = f"{_counted(reading.late)} waited longer than {spoken(LATE)}: {why}."
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
    return _Found(verdict, frozenset(late))


def _alert(case: _Case) -> _Found | None:
    found = None if _of_sources(case) else of_alerts(case.findings, case.managers)
    return None if found is None else _Found(found[0], commands=found[1])


def _some_failures(case: _Case) -> _Found | None:
    if not case.reading.failed.number or _of_sources(case):
        return None
    said = f"{_counted(case.reading.failed)} of the last {spoken(LATELY)} failed; the rest goes on."
    return _Found(Verdict(health=Health.ATTENTION, cause="failed", sentence=said, why=case.reading.failure))


def _other_problem(case: _Case) -> _Found | None:
    shown = case.wrong or next((finding for finding in case.findings if finding.check == MALFORMED), None)
    if shown is None:
        return None
    said, cause = f"{shown.what[:1].upper()}{shown.what[1:]}.", "problem" if case.wrong else MALFORMED
    return _Found(Verdict(health=Health.ATTENTION, cause=cause, sentence=said, next=shown.fix, why=shown.why))


# A cause comes before those that follow from it.
_LOOKS: Sequence[Callable[[_Case], _Found | None]] = (
    _store,
    _no_worker,
    _stuck_sources,
    _no_manager,
    _crash_loop,
    _held_tasks,
    _many_failures,
    _cannot_start,
    _growing,
    _overdue,
    _paused_queue,
    _late_tasks,
    _alert,
    _some_failures,
    _other_problem,
)


def next_and_waiting(reading: StoreReading, view: WorkerPoolView, now: Moment) -> str:
    """When its next worker starts, and how many tasks wait in its queues."""
    waiting = sum(queue.waiting for queue in reading.queues if serves(view, queue.name))
    return view.next_start(now) + (f", and {tasks_wait(waiting)}" if waiting else "")


def held_tasks(reading: StoreReading) -> str:
    return _counted(Count(sum(reading.held.values()), reading.more_held))


def tasks_wait(number: int) -> str:
    return f"{counted(number, 'task')} {'waits' if number == 1 else 'wait'}"


def most_first(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda name: -counts[name])


def serves(view: WorkerPoolView, queue: str) -> bool:
    return view.pool.queues is None or queue in view.pool.queues


def _counted(count: Count) -> str:
    return counted(count.number, "task", more=count.more)
