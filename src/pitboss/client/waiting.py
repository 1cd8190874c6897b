"""Reads why tasks and batches do not run. `model.waiting` makes the answer; every face shows the same one."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.model.batch import IN_SLOT, Batch, BatchStatus
from pitboss.model.duration import Moment, Span
from pitboss.model.filter import by, parsed
from pitboss.model.fleet import alive, live_managers
from pitboss.model.gates import Line, Scene
from pitboss.model.ids import TaskId
from pitboss.model.matching import waited
from pitboss.model.outcome import NO_KEY
from pitboss.model.partition import Partition
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import Queue
from pitboss.model.resource import Stage, Want
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task
from pitboss.model.waiting import Why, why_batch, why_task

_LINE_READ = 500
# Where more wait than this, what is before a task is mostly of its own priority: only that is read.
_MIXED = 2000
_QUEUES_SAMPLED = 20
_SAMPLED = 10
# How many tasks are looked at, each time, to find one that has waited longer than those that were found before.
_LOOKED_THROUGH = 5000
_LOOKS = 3
# With more members than this, tasks are explained in a thread: the loop has other work.
_MANY_MEMBERS = 1000


class WaitingTask(NamedTuple):
    """A task and why it does not run."""

    task: Task
    why: Why


async def explain_task(store: Store, task: Task, now: Moment) -> Why:
    """Why this task does not run. A few reads, however many tasks wait."""
    if task.state.finished:
        return why_task(task, Scene(now=now))
    sessions = await store.sessions()
    if task.state is State.RUNNING:
        handlers = await store.handlers() if task.cancel_asked else ()
        sync = frozenset(one.name for one in handlers if one.sync)
        return why_task(task, Scene(now=now, sync=sync), sessions)
    queues = _by_name(await store.queues())
    line = (
        await read_line(store, queues.get(task.queue), _LINE_READ, task.priority)
        if task.state is State.PENDING
        else None
    )
    lines = {} if line is None else {task.queue: line}
    return why_task(task, await read_scene(store, [task], now, queues=queues, sessions=sessions, lines=lines))


async def explain_queues(
    store: Store,
    queues: Sequence[Queue],
    sessions: Sequence[Session],
    now: Moment,
    *,
    also: Sequence[TaskId] = (),
    sparing: bool = False,
) -> list[WaitingTask]:
    """Some pending tasks of each queue, and why they do not run: the oldest ones, since tasks that cannot run stay. Of
    batches whose items no claim draws, one item. `also`: these tasks too, if they wait. `sparing`: see `read_scene`."""
    return list((await read_waiting(store, queues, sessions, now, also=also, sparing=sparing)).tasks)


class Waiting(NamedTuple):
    """Tasks that wait and why, with what surrounds them; `running` are batches that draw items."""

    tasks: Sequence[WaitingTask]
    scene: Scene
    running: Sequence[Batch] = ()


async def read_waiting(
    store: Store,
    queues: Sequence[Queue],
    sessions: Sequence[Session],
    now: Moment,
    *,
    also: Sequence[TaskId] = (),
    sparing: bool = False,
) -> Waiting:
    """As `explain_queues`, with everything that was read for it."""
    fullest = sorted(queues, key=lambda queue: -queue.counts.get(State.PENDING, 0))[:_QUEUES_SAMPLED]
    lines = {
        queue.name: await read_line(store, queue, _SAMPLED) for queue in fullest if queue.counts.get(State.PENDING)
    }
    tasks = [task for line in lines.values() for task in line.tasks]
    tasks += [task for task in await _without_key(store, sessions, now) if task.queue not in lines]
    running = await _running_batches(store, queues)
    tasks += [item for item in await _undrawn_items(store, running) if item.queue not in lines]
    if others := sorted({*also} - {task.id for task in tasks}):
        waiting = (State.PENDING, State.HELD)
        tasks += [task for task in await store.get(others) if task is not None and task.state in waiting]
    scene = await read_scene(
        store, tasks, now, queues=_by_name(queues), sessions=sessions, lines=lines, sparing=sparing
    )
    if sum(len(view.members) for view in scene.pools.values()) > _MANY_MEMBERS:
        return Waiting(await asyncio.to_thread(_explained, tasks, scene), scene, running)
    return Waiting(_explained(tasks, scene), scene, running)


def _explained(tasks: Iterable[Task], scene: Scene) -> list[WaitingTask]:
    return [WaitingTask(task, why_task(task, scene)) for task in tasks]


async def explain_held(
    store: Store, queues: Sequence[Queue], sessions: Sequence[Session], now: Moment
) -> list[WaitingTask]:
    """Some tasks that are held because no worker knows their handler, and what they wait for."""
    if not any(queue.counts.get(State.HELD) for queue in queues):
        return []
    held = (await store.find(by(state=State.HELD, reason="handler"), limit=_LINE_READ, oldest_first=True)).tasks
    scene = await read_scene(store, held, now, queues=_by_name(queues), sessions=sessions)
    return [WaitingTask(task, why_task(task, scene)) for task in held]


async def explain_batches(store: Store, batches: Sequence[Batch], now: Moment) -> dict[str, Why]:
    """Why these batches make no progress, by id; those that do are left out."""
    idle = [batch for batch in batches if batch.status in IN_SLOT and not batch.counts.get(State.RUNNING)]
    items = {batch.id: await _waiting_item(store, batch) for batch in idle}
    tasks = [item for item in items.values() if item is not None]
    scene = await read_scene(store, tasks, now, batches=batches)
    found = {batch.id: why_batch(batch, scene, items.get(batch.id)) for batch in batches}
    return {batch: why for batch, why in found.items() if why is not None}


async def read_line(store: Store, queue: Queue | None, limit: int, priority: int | None = None) -> Line:
    """The oldest pending tasks of a queue. With a priority: those of this priority, where many wait."""
    waiting = 0 if queue is None else queue.counts.get(State.PENDING, 0)
    if queue is None or not waiting:
        return Line()
    wanted, mixed = by(state=State.PENDING, queue=queue.name), priority is None or waiting <= _MIXED
    if not mixed:
        wanted = wanted.also(priority=str(priority))
    page = await store.find(wanted, limit=limit, oldest_first=True)
    return Line(page.tasks, page.next is None and mixed)


async def oldest_wait(store: Store, queue: Queue, now: Moment, line: Line | None = None) -> Span | None:
    """How long the oldest due task of a queue has waited since it was due; None if that is not known, because an engine
    gave up on a queue with very many priorities. Items of batches, which are as old as their batch, do not count.
    `line`: its oldest tasks, if the caller has read them.

    Only where the oldest ones are items, or were due later than they were made, some more are looked at.
    """
    if line is None:
        line = await read_line(store, queue, _SAMPLED)
    known, sure = _longest(line.tasks, now)
    sure = sure or line.whole
    for _ in range(0 if sure else _LOOKS):
        longer = parsed(f"-batch:* wait:>{known or 0}us").also(state=State.PENDING, queue=queue.name)
        page = await store.find(longer, limit=_SAMPLED, oldest_first=True, most=_LOOKED_THROUGH)
        found, sure = _longest(page.tasks, now)
        if found is None and known is None and page.covered is not None:
            return None
        known = known if found is None else found
        if found is None or sure:
            break
    return known or 0


def _longest(tasks: Iterable[Task], now: Moment) -> tuple[Span | None, bool]:
    """The longest wait of those of these tasks that are no items of batches, None if all are; and whether younger tasks
    have waited for less: those that came after one that was due at once have."""
    own = [task for task in tasks if task.batch is None]
    longest = max((max(0, waited(task, now) or 0) for task in own), default=None)
    return longest, any(task.run_at is None or task.run_at <= task.created_at for task in own)


async def read_scene(
    store: Store,
    tasks: Sequence[Task],
    now: Moment,
    *,
    queues: Mapping[str, Queue] | None = None,
    sessions: Sequence[Session] | None = None,
    batches: Iterable[Batch] | None = None,
    lines: Mapping[str, Line] | None = None,
    sparing: bool = False,
) -> Scene:
    """What surrounds these tasks; what the caller has read already is not read again. `sparing`: members are read only
    where it matters which of them are ready."""
    has = capabilities(store)
    named = _by_name(await store.queues()) if queues is None else queues
    pools = {task.id: named[task.queue].resources for task in tasks if task.queue in named}
    keys = {(pool, task.want.key) for task in tasks if task.want and task.want.key and (pool := pools.get(task.id))}
    picky = {pools.get(task.id) for task in tasks if task.tried or task.want not in (None, Want())}
    own = sorted({task.batch for task in tasks if task.batch is not None})
    if batches is None:
        batches = await has.batches.batches(own) if has.batches and own else ()
    found = {batch.id: batch for batch in batches}
    divided = await _read_partitions(store, tasks, named)
    living = alive(await store.sessions() if sessions is None else sessions, now)
    return Scene(
        now=now,
        managers=live_managers(living, now),
        others=[one for one in living if one.info.kind != "manager"],
        remote={one.name: one.queues for one in await store.handlers() if one.remote} if tasks else {},
        queues=named,
        pools=await pool_views(store, pools.values(), picky if sparing else None),
        bound={key: name for key in sorted(keys) if (name := await has.resources.bound(*key))} if has.resources else {},
        batches=found,
        lanes={lane.name: lane for lane in await has.batches.lanes()} if has.batches and found else {},
        lines=lines or {},
        keys=divided.keys,
        slots=divided.slots,
        led=divided.led,
    )


class _Divided(NamedTuple):
    keys: Mapping[tuple[str, str], Partition] = {}
    slots: Sequence[PoolSlot] = ()
    led: bool = True


async def _read_partitions(store: Store, tasks: Sequence[Task], queues: Mapping[str, Queue]) -> _Divided:
    """The keys of the queues with partitions that these tasks are in. Running tasks are counted only where they matter:
    for keys of these tasks that have a limit or are moving."""
    partitions = capabilities(store).partitions
    divided = sorted({task.queue for task in tasks if task.queue in queues and queues[task.queue].partitions})
    if partitions is None or not divided:
        return _Divided()
    keys = {(name, one.key): one for name in divided for one in await partitions.partitions(name, counts=False)}
    for name, key in sorted({(task.queue, task.partition) for task in tasks if task.partition} & keys.keys()):
        one = keys[name, key]
        if queues[name].max_per_key is not None or one.moving_to is not None:
            running = (await store.count(by(state=State.RUNNING, queue=name, partition=key))).number
            keys[name, key] = replace(one, counts={State.RUNNING: running} if running else {})
    return _Divided(keys, await partitions.slots(), await store.leader() is not None)


async def pool_views(
    store: object, names: Iterable[str | None], picky: Collection[str | None] | None = None
) -> dict[str, ResourcePoolView]:
    """The resource pools of these names with their members; a store without resources has none.

    If `picky` is given, the members of another pool are read only if none of them is ready.
    """
    wanted = {name for name in names if name is not None}
    resources = capabilities(store).resources
    if not wanted or resources is None:
        return {}
    views: dict[str, ResourcePoolView] = {}
    for pool in await resources.resource_pools():
        if pool.name not in wanted:
            continue
        ready = 0 if picky is None or pool.name in picky else pool.stages.get(Stage.READY, 0)
        members = () if ready else await resources.resources(pool.name)
        views[pool.name] = ResourcePoolView(pool.name, pool.rules, members, ready)
    return views


async def _without_key(store: Store, sessions: Sequence[Session], now: Moment) -> Sequence[Task]:
    """Tasks that were given back because their manager lacks a key: no claim makes them pending again."""
    if not any(one.snapshot.missing_keys for one in live_managers(sessions, now)):
        return []
    given_back = by(state=State.SCHEDULED, reason=NO_KEY.reason)
    return (await store.find(given_back, limit=_SAMPLED, oldest_first=True)).tasks


async def _running_batches(store: Store, queues: Sequence[Queue]) -> Sequence[Batch]:
    """Batches that draw items, if any item is held."""
    batches = capabilities(store).batches
    if batches is None or not any(queue.counts.get(State.HELD) for queue in queues):
        return []
    return await batches.batches(statuses=[BatchStatus.RUNNING], limit=_QUEUES_SAMPLED)


async def _undrawn_items(store: Store, running: Sequence[Batch]) -> list[Task]:
    """One item of each running batch that has only undrawn ones left."""
    idle = [one for one in running if not one.counts.get(State.RUNNING) and not one.counts.get(State.PENDING)]
    items = [await _waiting_item(store, batch) for batch in idle]
    return [item for item in items if item is not None and item.state is State.HELD]


async def _waiting_item(store: Store, batch: Batch) -> Task | None:
    """An item that waits: drawn already, else one that a claim would draw, else one that is due later."""
    for state in (State.PENDING, State.HELD, State.SCHEDULED):
        if batch.counts.get(state):
            page = await store.find(by(batch=batch.id, state=state), limit=1, oldest_first=True)
            if page.tasks:
                return page.tasks[0]
    return None


def _by_name(queues: Iterable[Queue]) -> dict[str, Queue]:
    return {queue.name: queue for queue in queues}
