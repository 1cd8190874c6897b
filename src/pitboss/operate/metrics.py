"""The values of `model.metrics`: of the whole store, whichever server is asked, read from what the store keeps."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator

from pitboss.client.waiting import oldest_wait
from pitboss.engines.capabilities import Capabilities, capabilities
from pitboss.engines.protocol import Store
from pitboss.model.alert import Phase
from pitboss.model.batch import OVER, BatchStatus
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.figures import OTHERS, RAW, Flow
from pitboss.model.fleet import WorkerPoolView, alive, live_managers, worker_pools
from pitboss.model.metrics import MOST_RULES, Series
from pitboss.model.queue import Queue, is_reserved
from pitboss.model.resource import Condition
from pitboss.model.session import Session
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import FINISHED, State
from pitboss.model.totals import OWN_POOLS, OWN_QUEUES, Totals
from pitboss.operate.alerts import read_alerts
from pitboss.operate.schedules import schedule_figures

Values = dict[str, list[Series]]
Found = Iterator[tuple[str, Series]]
OUTCOMES = ("completed", "failed", "cancelled", "retried", "lost")
_UNFINISHED = tuple(state for state in State if state not in FINISHED)
_STATUSES = tuple(status for status in BatchStatus if status not in OVER)
_COUNTED_BATCHES = 1000
# The oldest wait is looked up for the fullest queues only.
_LOOKED_AT = 100
# The leader writes how the members are every 10 s, and a little after that.
_SEEN_WITHIN: Span = 4 * RAW
_KEPT: Span = 5 * SECOND


class MetricsReader:
    """Reads them at most every five seconds, however many ask."""

    def __init__(self, store: Store, version: str) -> None:
        self._store, self._version = store, version
        self._lock = asyncio.Lock()
        self._read: tuple[Moment, Values] | None = None

    async def read(self) -> Values:
        """The same object until they are read again."""
        async with self._lock:
            now = self._store.clock.now()
            if self._read is None or not 0 <= now - self._read[0] < _KEPT:
                self._read = now, await read_metrics(self._store, self._version)
            return self._read[1]


async def read_metrics(store: Store, version: str) -> Values:
    """By the names of the metrics. What the engine does not have is left out. Nothing that is read here grows with the
    number of stored tasks."""
    before = store.clock.now()
    led = await store.leader() is not None
    now, has = store.clock.now(), capabilities(store)
    values: Values = {
        "pitboss_build_info": [Series((version,), 1)],
        "pitboss_leader": [Series((), int(led))],
        "pitboss_store_answer_seconds": [Series((), (now - before) / SECOND)],
    }
    queues = [one for one in await store.queues() if not is_reserved(one.name)]
    views = _fleet(values, await store.sessions(), now)
    totals = await has.figures.totals() if has.figures is not None else None
    await _add_queues(values, store, queues, totals, now)
    _add_workers(values, views, totals)
    await _add_resources(values, has, totals, now)
    await _add_the_rest(values, store, has)
    return values


def _fleet(values: Values, sessions: list[Session], now: Moment) -> list[WorkerPoolView]:
    managers = live_managers(sessions, now)
    remote = sum(one.info.kind == "remote" for one in alive(sessions, now))
    values["pitboss_managers"] = [Series((), len(managers))]
    values["pitboss_remote_workers"] = [Series((), remote)]
    return worker_pools(managers)


async def _add_queues(values: Values, store: Store, queues: list[Queue], totals: Totals | None, now: Moment) -> None:
    """Those that have totals of their own have gauges of their own too."""
    there = {one.name for one in queues}
    flows = [] if totals is None else [one for one in totals.flows if one.queue in there or one.queue == OTHERS]
    own = _own((*(one.queue for one in flows), *sorted(there)), OWN_QUEUES)
    _add(values, _flow_series(flows))
    if totals is not None:
        for name, both in totals.measured.queues.items():
            if name in there or name == OTHERS:
                values.setdefault("pitboss_task_wait_seconds", []).append(Series((name,), both.wait))
                values.setdefault("pitboss_task_run_seconds", []).append(Series((name,), both.run))
    fullest = sorted(queues, key=lambda one: -one.counts.get(State.PENDING, 0))[:_LOOKED_AT]
    looked_at = fullest + [one for one in queues if not one.counts.get(State.PENDING, 0)]
    waits = {one.name: await oldest_wait(store, one, now) for one in looked_at}
    _add(values, _queue_series(queues, own, waits))


def _flow_series(flows: Iterable[Flow]) -> Found:
    for one in flows:
        names = (one.queue, one.handler)
        yield "pitboss_tasks_enqueued_total", Series(names, one.arrived)
        for outcome in OUTCOMES:
            yield "pitboss_tasks_total", Series((*names, outcome), getattr(one, outcome))


def _queue_series(queues: Iterable[Queue], own: set[str], waits: dict[str, Span | None]) -> Found:
    grouped = dict[str, list[Queue]]()
    for one in queues:
        grouped.setdefault(one.name if one.name in own else OTHERS, []).append(one)
    for name, group in grouped.items():
        for state in _UNFINISHED:
            number = sum(one.counts.get(state, 0) for one in group)
            yield "pitboss_queue_tasks", Series((name, state.value), number)
        known = [wait for one in group if (wait := waits.get(one.name)) is not None]
        if known:
            yield "pitboss_queue_oldest_wait_seconds", Series((name,), max(known) / SECOND)
        yield "pitboss_queue_paused", Series((name,), int(any(one.paused for one in group)))
        yield "pitboss_dead_letters", Series((name,), sum(one.counts.get(State.FAILED, 0) for one in group))


def _add_workers(values: Values, views: list[WorkerPoolView], totals: Totals | None) -> None:
    measured = {} if totals is None else totals.measured.pools
    there = {one.pool.name for one in views}
    own = _own((*(name for name in measured if name in there), *sorted(there)), OWN_POOLS)
    grouped = dict[str, list[WorkerPoolView]]()
    for view in views:
        grouped.setdefault(view.pool.name if view.pool.name in own else OTHERS, []).append(view)
    for name, group in grouped.items():
        _add(values, _pool_series(name, group))
    for name, ends in measured.items():
        if name in there or name == OTHERS:
            _add(values, [("pitboss_worker_restarts_total", Series((name,), ends.restarts))])
            _add(values, [("pitboss_worker_crashes_total", Series((name,), ends.crashes))])


def _pool_series(name: str, views: list[WorkerPoolView]) -> Found:
    states = Counter(worker.state for view in views for worker in view.workers)
    for state in WorkerState:
        yield "pitboss_workers", Series((name, state.value), states[state])
    yield "pitboss_workers_wanted", Series((name,), sum(view.pool.wanted for view in views))
    slots = sum(len(view.live) * view.pool.concurrency for view in views)
    yield "pitboss_worker_slots", Series((name,), slots)
    yield "pitboss_worker_tasks", Series((name,), sum(view.running for view in views))
    memory = sum(worker.rss for view in views for worker in view.live)
    yield "pitboss_worker_memory_bytes", Series((name,), memory)


async def _add_resources(values: Values, has: Capabilities, totals: Totals | None, now: Moment) -> None:
    there = {one.name for one in await has.resources.resource_pools()} if has.resources is not None else set[str]()
    if not there or totals is None:
        return
    measured = totals.measured.resources
    own = _own((*(name for name in measured if name in there), *sorted(there)), OWN_POOLS)
    for name, uses in measured.items():
        if name in there or name == OTHERS:
            _add(values, [("pitboss_resource_uses_total", Series((name,), uses.uses))])
            _add(values, [("pitboss_resource_shortages_total", Series((name,), uses.limits_met))])
            _add(values, [("pitboss_resource_refusals_total", Series((name,), uses.refusals))])
    members = await _members(has, there, now)
    grouped = dict[str, Counter[str]]()
    for name, conditions in members.items():
        grouped.setdefault(name if name in own else OTHERS, Counter()).update(conditions)
    for name, conditions in grouped.items():
        for one in Condition:
            _add(values, [("pitboss_resource_members", Series((name, one.value), conditions[one.value]))])


async def _members(has: Capabilities, there: set[str], now: Moment) -> dict[str, Counter[str]]:
    """As the leader saw them last; nothing if none leads, or the pool is gone."""
    assert has.figures is not None
    samples = await has.figures.samples(now - _SEEN_WITHIN, now + RAW, span=RAW)
    led = [one for one in samples if one.led]
    if not led:
        return {}
    last = max(led, key=lambda one: one.at)
    return {
        name: Counter({condition: seconds // (RAW // SECOND) for condition, seconds in pool.members.items()})
        for name, pool in last.resources.items()
        if name in there and pool.members
    }


async def _add_the_rest(values: Values, store: Store, has: Capabilities) -> None:
    schedules = await schedule_figures(store, store.clock.wall())
    if schedules is not None:
        active = schedules.total - schedules.paused
        values["pitboss_schedules"] = [Series(("active",), active), Series(("paused",), schedules.paused)]
        values["pitboss_schedules_late"] = [Series((), len(schedules.overdue))]
        values["pitboss_schedule_late_seconds"] = [Series((), schedules.late_by / SECOND)]
    if has.batches is not None:
        found = await has.batches.batches(statuses=_STATUSES, limit=_COUNTED_BATCHES)
        numbers = Counter(one.status for one in found)
        values["pitboss_batches"] = [Series((status.value,), numbers[status]) for status in _STATUSES]
    if has.alerts is not None:
        reading = await read_alerts(store)
        if not reading.stale:
            values["pitboss_alerts"] = [
                Series((one.rule.name, one.rule.severity.value), int(one.state.phase is Phase.FIRING))
                for one in reading.alerts[:MOST_RULES]
            ]


def _own(names: Iterable[str], most: int) -> set[str]:
    """The first names that are told apart."""
    return set([name for name in dict.fromkeys(names) if name != OTHERS][:most])


def _add(values: Values, found: Iterable[tuple[str, Series]]) -> None:
    for name, series in found:
        values.setdefault(name, []).append(series)
