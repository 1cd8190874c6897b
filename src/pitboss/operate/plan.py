"""What a launch would do: the workers and resources of each queue, who gets which keys, and how long it takes.

`pitboss plan` shows it, and `pitboss up --confirm` asks with it. Nothing is changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import msgspec

from pitboss.client.handler_sizes import recall_sizes
from pitboss.client.waiting import pool_views
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.model.assignment import assignment
from pitboss.model.desired_state import DesiredPool
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.estimate import Ended, Estimate, Timing, Work, estimate, timing, told, what_if
from pitboss.model.eta import ENOUGH_ITEMS
from pitboss.model.filter import by
from pitboss.model.finding import Finding
from pitboss.model.fleet import live_managers, worker_pools
from pitboss.model.leasing import in_service
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.partition_gates import serving
from pitboss.model.pool import PoolSpec
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import HandlerInfo, Queue, QueueSettings, declared_queue, is_reserved
from pitboss.model.resource import PoolRules
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task
from pitboss.operate.batches import paused_items
from pitboss.operate.desired_state import read_desired_state
from pitboss.operate.partitions import by_number
from pitboss.operate.plan_findings import findings_of, idle

_SAMPLED = 300
_LEFT = (State.HELD, State.SCHEDULED, State.PENDING, State.RUNNING)


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a pool on one host: those that run there, or those that would be started (`places`)."""

    pool: str
    workers: int
    concurrency: int = 1
    delay: Span = 0
    queues: tuple[str, ...] | None = None
    host: str = ""
    places: tuple[int, ...] = ()

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


class SlotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A slot, and the keys that it has or would get with their unfinished tasks. `manned`: a worker has it or would."""

    slot: str
    keys: dict[str, int]
    manned: bool = True

    @property
    def tasks(self) -> int:
        return sum(self.keys.values())


class ResourcePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The resource pool of a queue: how many of its members are usable now, and how many uses per hour they allow."""

    pool: str
    usable: int
    members: int
    per_hour: float | None


class QueuePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: what is done and left, its workers, and the estimate. `stranded` has the tasks by key whose slot no
    worker has, `unlisted` those by key that no slot of the table has, `paused` is how many others belong to paused
    batches; they are not part of the estimate. `kept` are slots whose managers have just stopped."""

    queue: Queue
    left: int
    crews: tuple[Crew, ...]
    timing: Timing | None
    estimate: Estimate
    otherwise: Mapping[str, Estimate] = {}
    resource: ResourcePlan | None = None
    slots: tuple[SlotPlan, ...] = ()
    stranded: Mapping[str, int] = {}
    unlisted: Mapping[str, int] = {}
    paused: int = 0
    kept: tuple[PoolSlot, ...] = ()

    @property
    def waiting(self) -> int:
        """How many tasks cannot start."""
        return sum(self.stranded.values()) + sum(self.unlisted.values()) + self.paused

    @property
    def done(self) -> int:
        return self.queue.counts.get(State.COMPLETED, 0)

    @property
    def progress(self) -> float:
        """The completed part of all tasks that are in the store and not failed or cancelled."""
        return self.done / (self.done + self.left) if self.done + self.left else 0.0

    @property
    def workers(self) -> int:
        return sum(one.workers for one in self.crews)


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All queues with unfinished tasks or workers, and what was checked. `starts` is how many workers the launch
    starts."""

    queues: tuple[QueuePlan, ...]
    findings: tuple[Finding, ...]
    starts: int = 0


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What would be started on a host: worker pools, and what the app declares. `joins`: beside the managers that run
    already."""

    host: str = ""
    pools: Sequence[PoolSpec] = ()
    queues: Mapping[str, QueueSettings] = {}
    handlers: Sequence[HandlerInfo] = ()
    joins: bool = False


async def read_plan(store: Store, launch: Launch, now: Moment) -> LaunchPlan:
    """A few reads, however many tasks wait."""
    crews = await _crews(store, launch, now)
    handlers = {one.name: one for one in (*await store.handlers(), *launch.handlers)}
    queues = _queues(await store.queues(), launch)
    views = await pool_views(store, {_pool(queue, handlers.values()) for queue in queues})
    ended = {queue.name: await _ended_of(store, queue) for queue in queues}
    known = await _remembered(store, [one for one in queues if len(ended[one.name]) < ENOUGH_ITEMS], handlers, now)
    timings = {
        one.name: timing(ended[one.name], _declared(one, handlers.values()), known.get(one.name, ())) for one in queues
    }
    paused, found = await paused_items(store), []
    for queue in queues:
        pool = _pool(queue, handlers.values())
        view = views.get(pool, ResourcePoolView(pool, PoolRules())) if pool is not None else None
        own = tuple(crew for crew in crews if crew.serves(queue.name))
        division = await _division(store, queue, own, joins=launch.joins)
        busy = _others(queue, queues, timings, own, paused)
        found.append(_queue_plan(queue, own, timings[queue.name], view, division, busy, paused[queue.name], now))
    shown = tuple(one for one in found if one.left or one.queue.name in launch.queues)
    findings = [*(each for one in found for each in findings_of(one, launch)), *idle(found)]
    starts = sum(crew.workers for crew in crews if not crew.host)
    return LaunchPlan(queues=shown, findings=tuple(findings), starts=starts)


def plan_document(plan: LaunchPlan) -> dict[str, Any]:
    return {
        "checks": [msgspec.to_builtins(one) for one in plan.findings],
        "queues": [_queue_document(one) for one in plan.queues],
    }


def _queue_document(one: QueuePlan) -> dict[str, Any]:
    return {
        "queue": one.queue.name,
        "left": one.left,
        "done": one.done,
        "progress": one.progress,
        "can_end": one.left - one.waiting,
        "stranded": sum(one.stranded.values()),
        "not_in_table": sum(one.unlisted.values()),
        "paused": one.paused,
        "kept_slots": [slot.name for slot in one.kept],
        "workers": [_crew_document(crew) for crew in one.crews],
        "slots": [{**msgspec.to_builtins(slot), "tasks": slot.tasks} for slot in one.slots],
        "resources": None if one.resource is None else msgspec.to_builtins(one.resource),
        "seconds_per_task": None if one.timing is None else one.timing.mean / SECOND,
        "measured": 0 if one.timing is None else one.timing.samples,
        "estimate": _estimate_document(one.estimate),
        "what_if": {name: _estimate_document(other) for name, other in one.otherwise.items()},
    }


def _crew_document(crew: Crew) -> dict[str, Any]:
    return {
        "pool": crew.pool,
        "host": crew.host or None,
        "workers": crew.workers,
        "concurrency": crew.concurrency,
        "delay": crew.delay / SECOND,
        "queues": None if crew.queues is None else list(crew.queues),
    }


def _estimate_document(found: Estimate) -> dict[str, Any]:
    time = found.time if found.timed else None
    known = time is not None and time.middle < inf
    return {
        "text": told(found),
        "bound_by": None if found.bound is None else found.bound.kind,
        "per_second": found.rate,
        "seconds": time.middle / SECOND if time is not None and known else None,
        "earliest": time.least / SECOND if time is not None and known else None,
        "latest": time.most / SECOND if time is not None and known else None,
    }


async def _crews(store: Store, launch: Launch, now: Moment) -> list[Crew]:
    """The workers that run; those of the launch if none runs, or if it joins them, as many as operators want."""
    views = worker_pools(live_managers(await store.sessions(), now))
    asked = (await read_desired_state(store)).state
    live = [
        Crew(
            pool=view.pool.name,
            workers=view.pool.wanted,
            concurrency=max(1, view.pool.concurrency),
            delay=_mean(asked.pool(view.pool.name, view.manager.host).delay or view.pool.delay),
            queues=view.pool.queues,
            host=view.manager.host,
        )
        for view in views
        if view.pool.wanted
    ]
    if live and not launch.joins:
        return live
    return live + [_launched(pool, asked.pool(pool.name, launch.host)) for pool in launch.pools if pool.max_workers]


def _launched(pool: PoolSpec, asked: DesiredPool) -> Crew:
    """The workers of a pool that a manager starts: as many as an operator wants, if one does (with `only`: all or
    none)."""
    configured = asked.size is None or bool(pool.only and asked.size)
    places = pool.places(pool.max_workers if configured else asked.size or 0)
    return Crew(
        pool=pool.name,
        workers=len(places),
        concurrency=pool.concurrency,
        delay=_mean(asked.delay or pool.delay),
        queues=pool.queues,
        places=places,
    )


def _mean(bounds: tuple[Span, Span]) -> Span:
    return sum(bounds) // 2


def _queues(stored: Sequence[Queue], launch: Launch) -> list[Queue]:
    """The queues of the store, and those that the app declares or uses, with its declarations."""
    found = {queue.name: queue for queue in stored if not is_reserved(queue.name)}
    for name in dict.fromkeys((*(one.queue for one in launch.handlers if not one.remote), *launch.queues)):
        found.setdefault(name, Queue(name=name))
    return [
        declared_queue(queue, launch.queues[name]) if name in launch.queues else queue
        for name, queue in sorted(found.items())
    ]


def _pool(queue: Queue, handlers: Any) -> str | None:
    """The resource pool of a queue, also before its first task."""
    return queue.resources or next((one.resources for one in handlers if one.queue == queue.name), None)


def _declared(queue: Queue, handlers: Any) -> Span | None:
    """How long a task takes as its handlers declare."""
    declared = [one.usual for one in handlers if one.queue == queue.name and one.usual is not None]
    return sum(declared) // len(declared) if declared else None


async def _ended_of(store: Store, queue: Queue) -> list[Ended]:
    if not queue.counts.get(State.COMPLETED) or not _left(queue):
        return []
    found = (await store.find(by(state=State.COMPLETED, queue=queue.name), limit=_SAMPLED)).tasks
    return [one for task in found for one in _ended(task)]


async def _remembered(
    store: Store, queues: Sequence[Queue], handlers: Mapping[str, HandlerInfo], now: Moment
) -> dict[str, list[Span]]:
    """How long runs took as managers measured it lately, for queues whose ended tasks do not say so."""
    figures, unknown = capabilities(store).figures, {one.name for one in queues if _left(one)}
    names = [name for name, one in handlers.items() if one.queue in unknown]
    found: dict[str, list[Span]] = {}
    for name, sizes in (await recall_sizes(figures, now, names)).items() if figures and names else ():
        if name in names:
            found.setdefault(handlers[name].queue, []).extend(sizes.run.spread(_SAMPLED))
    return found


def _ended(task: Task) -> Iterator[Ended]:
    if task.started_at is not None and task.finished_at is not None:
        runs = max(1, task.attempts) + task.rotations
        took = task.finished_at - task.started_at
        yield Ended((task.session, task.worker), took, task.finished_at, runs, task.resource)


def _others(
    queue: Queue,
    queues: Sequence[Queue],
    timings: Mapping[str, Timing | None],
    crews: Sequence[Crew],
    paused: Mapping[str, int],
) -> Span:
    """How long the tasks of other queues keep the workers of this one busy, as far as that is known."""
    total = 0.0
    for other in queues:
        known = timings[other.name]
        if other.name != queue.name and known is not None and any(crew.serves(other.name) for crew in crews):
            total += (_left(other) - paused.get(other.name, 0)) * known.mean * known.runs
    return round(total)


class _Division(NamedTuple):
    """The slots of a queue with their keys, the unfinished tasks of keys that no slot has, and the slots that are kept
    for managers that have just stopped."""

    slots: tuple[SlotPlan, ...] = ()
    homeless: Mapping[str, int] = {}
    kept: tuple[PoolSlot, ...] = ()


async def _division(store: Store, queue: Queue, crews: Sequence[Crew], *, joins: bool) -> _Division:
    """Who has the keys of the queue, or would get them from the leader."""
    spec, verbs = queue.partitions, capabilities(store).partitions
    if spec is None or verbs is None:
        return _Division()
    keys = {one.key: one for one in await verbs.partitions(queue.name)}
    keys |= {key: Partition(queue=queue.name, key=key) for key in _table_keys(spec) if key not in keys}
    known = serving(await verbs.slots(), queue.name, spec)
    there = [slot for slot in known if slot.live]
    if not there or joins:
        there = [*there, *_new_slots([one for one in crews if not (there and one.host)], there, queue.name)]
    there = serving(there, queue.name, spec)
    moved = assignment(spec, keys.values(), there)
    owners = {key: moved.get(key) or one.moving_to or one.owner for key, one in keys.items()}
    named = {slot.name for slot in there}
    every = sorted(named | {owner for owner in owners.values() if owner is not None}, key=by_number)
    tasks = {key: one.unfinished for key, one in sorted(keys.items())}
    slots = [
        SlotPlan(slot=name, keys={key: n for key, n in tasks.items() if owners[key] == name}, manned=name in named)
        for name in every
    ]
    homeless = {key: n for key, n in tasks.items() if n and owners[key] is None}
    return _Division(tuple(slots), homeless, tuple(slot for slot in known if not slot.live))


def _table_keys(spec: Partitioning) -> list[str]:
    return [key for keys in spec.table.values() for key in keys]


def _new_slots(crews: Sequence[Crew], there: Sequence[PoolSlot], queue: str) -> Iterator[PoolSlot]:
    """The slots that new workers would get: the numbers of their places, or the next free ones."""
    taken = {(slot.pool, slot.number) for slot in there}
    for crew in crews:
        for place in crew.places or range(crew.workers):
            number = next(n for n in (place, *range(len(taken) + 1)) if (crew.pool, n) not in taken)
            taken.add((crew.pool, number))
            yield PoolSlot(pool=crew.pool, number=number, node="", place=place, session=0, queues=(queue,), live=True)


def _queue_plan(
    queue: Queue,
    crews: tuple[Crew, ...],
    known: Timing | None,
    view: ResourcePoolView | None,
    division: _Division,
    others: Span,
    paused: int,
    now: Moment,
) -> QueuePlan:
    spec, slots = queue.partitions, division.slots
    stranded, unlisted = _waiting(spec, division)
    waiting = {**stranded, **unlisted}
    able = max(0, _left(queue) - sum(waiting.values()))
    # The items of paused batches are not counted by key: as if all keys had the same part of them.
    share = min(1.0, paused / _left(queue)) if paused else 0.0
    paused = round(able * share)
    workers, seats = sum(crew.workers for crew in crews), sum(crew.workers * crew.concurrency for crew in crews)
    usable = None if view is None else _in_service(view, now)
    work = Work(
        left=able - paused,
        seats=seats,
        per_worker=max(1, round(seats / workers)) if workers else 1,
        delay=round(sum(crew.delay * crew.workers for crew in crews) / workers) if workers else 0,
        others=others,
        timing=known,
        rate=queue.rate,
        pool="" if view is None else view.name,
        usable=None if usable is None else usable.supply(now, waits=True),
        members=None if view is None else view.supply(now, waits=True),
        keys={key: _part(n, share) for slot in slots for key, n in slot.keys.items() if key not in waiting},
        max_per_key=queue.max_per_key,
        slots={
            one.slot: _part(one.tasks, share) for one in slots if one.manned and spec is not None and spec.exclusive
        },
        movable=spec is not None and spec.mode == "balanced",
        held=spec is not None and spec.mode == "static" and spec.on_missing == "hold",
        waiting=waiting,
        paused=paused,
    )
    return QueuePlan(
        queue=queue,
        left=_left(queue),
        crews=crews,
        timing=known,
        estimate=estimate(work),
        otherwise=what_if(work) if (work.left or waiting) and known is not None else {},
        resource=None if view is None or usable is None else _resource_plan(view, usable, work, now),
        slots=slots,
        stranded=stranded,
        unlisted=unlisted,
        paused=paused,
        kept=division.kept,
    )


def _part(tasks: int, paused: float) -> int:
    """The tasks without the part that belongs to paused batches."""
    return round(tasks * (1 - paused))


def _waiting(spec: Partitioning | None, division: _Division) -> tuple[dict[str, int], dict[str, int]]:
    """The tasks that no worker takes, by key: their slot has no worker; their key is not in the table."""
    if spec is None or not spec.exclusive or spec.on_missing == "steal":
        return {}, {}
    stranded = {key: n for slot in division.slots if not slot.manned for key, n in slot.keys.items() if n}
    if spec.mode != "static":
        return stranded, {}
    listed_keys = set(_table_keys(spec))
    unlisted = {key: n for key, n in division.homeless.items() if key not in listed_keys}
    return stranded | {key: n for key, n in division.homeless.items() if key in listed_keys}, unlisted


def _left(queue: Queue) -> int:
    return sum(queue.counts.get(state, 0) for state in _LEFT)


def _in_service(view: ResourcePoolView, now: Moment) -> ResourcePoolView:
    members = [member for member in view.members if in_service(member, now)]
    return ResourcePoolView(view.name, view.rules, members)


def _resource_plan(view: ResourcePoolView, usable: ResourcePoolView, work: Work, now: Moment) -> ResourcePlan:
    use = 0 if work.timing is None else work.timing.mean
    per_second = usable.supply(now).rate(use, whole=False)
    return ResourcePlan(
        pool=view.name,
        usable=len(usable.members),
        members=len(view.members),
        per_hour=None if per_second == inf else per_second * 3600,
    )
