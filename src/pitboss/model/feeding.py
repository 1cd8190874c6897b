"""What feeds a pool of workers: what a resource pool allows, at a time and per second, and what batches hold ready."""

from collections.abc import Iterable, Mapping

import msgspec

from pitboss.model.batch import Batch, BatchStatus
from pitboss.model.duration import SECOND
from pitboss.model.resource import ResourcePool, Stage
from pitboss.model.scaling import PoolLoad
from pitboss.model.states import State


def feed(pool: ResourcePool) -> int | None:
    """How many tasks can hold a member at a time; None is without limit."""
    most = pool.rules.limits.concurrency
    return None if most is None else _usable(pool) * most


def flow(pool: ResourcePool) -> float | None:
    """How many uses per second the limits of its members allow; None is without limit."""
    limits = pool.rules.limits
    rates = [window.count / (window.per + limits.guard) for window in limits.windows]
    gap = limits.min_delay + limits.jitter / 2
    if gap and limits.delay_from == "start":
        rates.append(1 / (gap + limits.guard))
    return min(rates) * SECOND * _usable(pool) if rates else None


def with_batches(load: PoolLoad, batches: Iterable[Batch], rooms: Mapping[str, int | None]) -> PoolLoad:
    """The load with what is drawn as soon as there is room: items of running batches on these queues.

    `rooms` says of each queue how many of its tasks can hold a resource at a time; None: as many as like. More than
    that of a batch is no work for workers. Items of a batch on several queues count by their share. Those of the batch
    that is next in its lane are coming, as soon as the one before it has nothing more to draw.
    """
    batches = list(batches)
    busy = {batch.lane for batch in batches if batch.status is BatchStatus.RUNNING and batch.counts.get(State.HELD)}
    pending, coming = load.pending, load.coming
    for batch in batches:
        held = _ready(batch, rooms)
        if batch.status is BatchStatus.RUNNING:
            pending += held
        elif batch.position == 1 and batch.lane not in busy:
            coming += held
    return msgspec.structs.replace(load, pending=pending, coming=coming)


def _ready(batch: Batch, rooms: Mapping[str, int | None]) -> int:
    here = [rooms[queue] for queue in batch.queues if queue in rooms]
    held = round(batch.counts.get(State.HELD, 0) * len(here) / max(1, len(batch.queues)))
    return held if None in here else min(held, sum(room or 0 for room in here))


def _usable(pool: ResourcePool) -> int:
    """Members that somebody will get again; whether one that is away comes back soon, nobody knows here."""
    return pool.members - pool.stages.get(Stage.OUT, 0)
