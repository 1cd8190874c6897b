"""Divides the keys of queues with partitions among the slots of workers: the duty of the leader.

`model.assignment` decides. A look reads the keys without their tasks, which is cheap; the tasks are counted only when
keys have to be given to slots, and once a minute to even out the work.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from pitboss.engines.partition_protocol import Partitions
from pitboss.engines.protocol import Clock, Store
from pitboss.model.assignment import EVEN_OUT_EVERY, assignment
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.filter import by
from pitboss.model.fleet import live_managers, worker_pools
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.partition_gates import serving
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import Queue
from pitboss.model.states import State
from pitboss.model.task import last_run
from pitboss.model.text import counted, listed
from pitboss.upkeep.sweep import reclaim

# How often a manager that has begun to lead notices it. It looks at each queue once a second.
REBALANCE_SECONDS = 0.5
_LOOK_EVERY: Span = SECOND
# With more keys than this, looks become rarer: at most this number is read per second.
_KEYS_PER_SECOND = 5000
_QUEUES_KEPT: Span = 2 * SECOND
_SAMPLED = 20


class Rebalancer:
    """The duty. `say` gets a sentence when keys change hands, but not for keys that never had a slot."""

    def __init__(self, engine: Store, store: Partitions, clock: Clock, *, say: Callable[[str], None]) -> None:
        self._engine, self._store, self._clock, self._say = engine, store, clock, say
        self._queues: list[Queue] = []
        self._queues_read_at: Moment | None = None
        # When each queue was looked at, and for how long that is enough.
        self._looked: dict[str, tuple[Moment, Span]] = {}
        self._evened: dict[str, Moment] = {}
        # By queue: the keys and slots for which there was nothing to do, although a slot has no key.
        self._settled: dict[str, tuple[list[Partition], list[PoolSlot]]] = {}

    async def rebalance(self, term: int) -> None:
        """Look at every queue that is due, under this term."""
        now = self._clock.now()
        due = [queue for queue in await self._divided(now) if self._is_due(queue.name, now)]
        if due:
            slots = await self._store.slots()
            for queue in due:
                await self._look(queue, slots, term)

    def _is_due(self, queue: str, now: Moment) -> bool:
        """Also if the store's clock went back: another client may have corrected it."""
        at, enough = self._looked.get(queue, (now, 0))
        return not 0 <= now - at < enough

    async def _divided(self, now: Moment) -> list[Queue]:
        """The queues that have partitions."""
        if self._queues_read_at is None or not 0 <= now - self._queues_read_at < _QUEUES_KEPT:
            self._queues = [queue for queue in await self._engine.queues() if queue.partitions is not None]
            self._queues_read_at = now
        return self._queues

    async def _look(self, queue: Queue, slots: Sequence[PoolSlot], term: int) -> None:
        name, spec, now = queue.name, queue.partitions, self._clock.now()
        assert spec is not None
        keys = await self._store.partitions(name, counts=False)
        self._looked[name] = now, max(_LOOK_EVERY, len(keys) * SECOND // _KEYS_PER_SECOND)
        owners = await self._decided(queue, spec, keys, _usable(spec, name, keys, slots))
        if owners or any(one.moving_to is not None for one in keys):
            await self._store.assign(name, owners, term=term)
            self._tell(name, keys, owners)

    async def _decided(
        self, queue: Queue, spec: Partitioning, keys: list[Partition], slots: list[PoolSlot]
    ) -> dict[str, str]:
        """The keys that should go to another slot."""
        name, now = queue.name, self._clock.now()
        even_out = not 0 <= now - self._evened.setdefault(name, now) < EVEN_OUT_EVERY
        if even_out:
            self._evened[name] = now
        if spec.mode == "static":
            owners = assignment(spec, keys, slots)
            return await self._counted(queue, spec, slots) if owners and spec.on_missing == "reassign" else owners
        if not slots:
            return {}
        needed = _homeless(keys, slots) or (_has_empty(keys, slots) and self._settled.get(name) != (keys, slots))
        if not needed and not even_out:
            return {}
        owners = await self._counted(queue, spec, slots, even_out=even_out)
        self._settled[name] = ([], []) if owners else (keys, slots)
        return owners

    async def _counted(
        self, queue: Queue, spec: Partitioning, slots: Sequence[PoolSlot], *, even_out: bool = False
    ) -> dict[str, str]:
        # Tasks of a dead session that are still marked as running would make their keys wait.
        await reclaim(self._engine)
        keys = await self._store.partitions(queue.name)
        seconds = await self._seconds(queue) if even_out else 1.0
        return assignment(spec, keys, slots, seconds=seconds, even_out=even_out)

    async def _seconds(self, queue: Queue) -> float:
        """How long a task of the queue keeps a slot: its run, and the pause after it, by how many run there at once."""
        managers = live_managers(await self._engine.sessions(), self._clock.now())
        pools = [
            view.pool
            for view in worker_pools(managers)
            if view.pool.wanted and (view.pool.queues is None or queue.name in view.pool.queues)
        ]
        pause = fmean(sum(one.delay) / 2 for one in pools) / SECOND if pools else 0.0
        at_once = fmean(max(1, one.concurrency) for one in pools) if pools else 1.0
        return (await self._run_seconds(queue) + pause) / at_once

    async def _run_seconds(self, queue: Queue) -> float:
        """The mean of some runs that completed, or what is declared, or else 1."""
        if queue.counts.get(State.COMPLETED):
            # The oldest have usually completed: the newest may be behind all that still wait.
            wanted = by(state=State.COMPLETED, queue=queue.name)
            page = await self._engine.find(wanted, limit=_SAMPLED, oldest_first=True)
            spans = [one.ended_at - one.started_at for one in map(last_run, page.tasks) if one is not None]
        else:
            handlers = [one for one in await self._engine.handlers() if one.queue == queue.name]
            spans = [one.usual for one in handlers if one.usual is not None]
        return sum(spans) / len(spans) / SECOND if spans else 1.0

    def _tell(self, queue: str, keys: Iterable[Partition], owners: dict[str, str]) -> None:
        had = {one.key for one in keys if one.owner is not None}
        moved = {key: slot for key, slot in owners.items() if key in had}
        if moved:
            self._say(f"queue {queue}: {counted(len(moved), 'key')} → {listed(sorted(set(moved.values())))}")


def _usable(spec: Partitioning, queue: str, keys: Iterable[Partition], slots: Sequence[PoolSlot]) -> list[PoolSlot]:
    """The slots that may own keys of the queue. One whose session has ended keeps its keys for a while; without any, it
    gets none."""
    used = {one.moving_to or one.owner for one in keys}
    return [one for one in serving(slots, queue, spec) if one.live or one.name in used]


def _homeless(keys: Iterable[Partition], slots: Iterable[PoolSlot]) -> bool:
    """Whether a key has no slot, one that is gone, or not the one that an operator chose."""
    there = {one.name for one in slots}
    for one in keys:
        present = one.moving_to or one.owner
        if present not in there or (one.pinned in there and one.pinned != present):
            return True
    return False


def _has_empty(keys: Iterable[Partition], slots: Iterable[PoolSlot]) -> bool:
    """Whether a slot has no key."""
    return not {one.name for one in slots} <= {one.moving_to or one.owner for one in keys}
