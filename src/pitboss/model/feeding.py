"""What feeds a pool of workers: what a resource pool allows, at a time and per second, and what batches hold ready."""

from collections.abc import Collection, Iterable

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


def with_batches(load: PoolLoad, batches: Iterable[Batch], queues: Collection[str]) -> PoolLoad:
    """The load with what is drawn as soon as there is room: items of running batches on these queues. Those of the
    batches that are next in their lanes are coming. Items of a batch on several queues count by their share."""
    pending, coming = float(load.pending), float(load.coming)
    for batch in batches:
        share = sum(queue in queues for queue in batch.queues) / max(1, len(batch.queues))
        held = batch.counts.get(State.HELD, 0) * share
        if batch.status is BatchStatus.RUNNING:
            pending += held
        elif batch.position == 1:
            coming += held
    return msgspec.structs.replace(load, pending=round(pending), coming=round(coming))


def _usable(pool: ResourcePool) -> int:
    """Members that somebody will get again; whether one that is away comes back soon, nobody knows here."""
    return pool.members - pool.stages.get(Stage.OUT, 0)
