"""Slots of workers, keys of queues, and which tasks of such queues a slot may take."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from pitboss.engines.memory.tables import Tables
from pitboss.engines.memory.verbs import Verbs
from pitboss.model.duration import Moment
from pitboss.model.errors import SessionLost
from pitboss.model.partition import (
    LOOK,
    Partition,
    PartitionChange,
    Partitioning,
    arrived,
    changed_partition,
    given_to,
)
from pitboss.model.pool_slot import PoolSlot, is_kept, seated, slot_name
from pitboss.model.session import Slot
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Task


class PartitionVerbs(Verbs):
    """The protocol `Partitions`."""

    async def take_slots(
        self,
        session: int,
        pool: str,
        node: str,
        places: Sequence[int],
        *,
        queues: tuple[str, ...] | None = None,
        exact: bool = False,
    ) -> list[PoolSlot]:
        self._reach("take_slots.before")
        now = self.clock.now()
        if not self._alive(session, now):
            raise SessionLost(session)
        tables = self.tables
        kept = [one for one in self._kept(now) if one.pool == pool]
        taken = seated(kept, tables.sessions, tables.sessions[session], pool, node, places, queues, exact=exact)
        left = {one.name for one in kept if one.session != session}
        tables.slots = {name: one for name, one in tables.slots.items() if one.pool != pool or name in left}
        tables.slots |= {one.name: one for one in taken}
        self._reach("take_slots.after")
        return taken

    async def slots(self) -> list[PoolSlot]:
        return sorted(self._kept(self.clock.now()), key=lambda one: (one.pool, one.number))

    async def partitions(self, queue: str, *, counts: bool = True) -> list[Partition]:
        keys = self.tables.keys_of[queue]
        found = [keys[key] for key in sorted(keys)]
        return [replace(one, counts=self._unfinished(queue, one.key)) for one in found] if counts else found

    async def assign(self, queue: str, owners: Mapping[str, str], *, term: int) -> int:
        self._reach("assign.before")
        self.check_term(term, self.clock.now())
        exclusive = self._is_exclusive(queue)
        before = dict(self.tables.keys_of[queue])
        for key, one in before.items():
            self.tables.keys_of[queue][key] = arrived(one, running=self._runs(queue, key))
        for key, slot in owners.items():
            one = self.tables.key_row(queue, key)
            self.tables.keys_of[queue][key] = given_to(one, slot, running=self._runs(queue, key), exclusive=exclusive)
        after = self.tables.keys_of[queue]
        if after != before:
            self.ring([queue])
        self._reach("assign.after")
        return sum(key not in before or one.epoch != before[key].epoch for key, one in after.items())

    async def change_partition(self, queue: str, key: str, change: PartitionChange) -> Partition:
        one = self.tables.key_row(queue, key)
        changed = changed_partition(one, change, running=self._runs(queue, key), exclusive=self._is_exclusive(queue))
        self.tables.keys_of[queue][key] = changed
        self.audit()
        self.ring([queue])
        return replace(changed, counts=self._unfinished(queue, key))

    def _kept(self, now: Moment) -> list[PoolSlot]:
        return kept_slots(self.tables, now)

    def _is_exclusive(self, queue: str) -> bool:
        known = self.tables.queues.get(queue)
        return known is not None and known.partitions is not None and known.partitions.exclusive

    def _runs(self, queue: str, key: str) -> bool:
        return self.tables.indexes.running_of(queue, key) > 0

    def _unfinished(self, queue: str, key: str) -> dict[State, int]:
        counted: dict[State, int] = {}
        for task in self.tables.tasks.values():
            if task.queue == queue and task.partition == key and task.state not in FINISHED:
                counted[task.state] = counted.get(task.state, 0) + 1
        return counted


def kept_slots(tables: Tables, now: Moment) -> list[PoolSlot]:
    found = []
    for one in tables.slots.values():
        session = tables.sessions.get(one.session)
        if is_kept(session, now):
            found.append(replace(one, live=session is not None and session.alive(now)))
    return found


class Reach:
    """Which tasks of queues with partitions one slot of a request may take."""

    def __init__(self, tables: Tables, slot: Slot, session: int, now: Moment) -> None:
        self._tables = tables
        name = None if slot.number is None else slot_name(slot.pool, slot.number)
        held = None if name is None else tables.slots.get(name)
        self._name = name if held is not None and held.session == session else None
        self._kept = {one.name for one in kept_slots(tables, now)}

    def owns(self, task: Task) -> bool:
        """Whether it comes first: the key is the slot's own, or there is none."""
        if task.partition is None or self._partitions(task) is None:
            return True
        one = self._tables.keys_of[task.queue].get(task.partition)
        return one is not None and self._is_own(one)

    def helps(self, task: Task) -> bool:
        """Whether it may take the task of another slot's key."""
        spec = self._partitions(task)
        if spec is None or not spec.exclusive:
            return True
        one = self._tables.keys_of[task.queue].get(task.partition or "")
        return spec.on_missing == "steal" and (one is None or one.owner not in self._kept)

    def in_reach(self, task: Task) -> bool:
        return not self.is_full(task) and (self.owns(task) or self.helps(task))

    def is_full(self, task: Task) -> bool:
        """Whether as many tasks of its key run as may."""
        queue = self._tables.queues[task.queue]
        most = queue.max_per_key
        if queue.partitions is None or most is None or task.partition is None:
            return False
        return self._tables.indexes.running_of(task.queue, task.partition) >= most

    def in_order(self, queues: Sequence[str]) -> Iterator[Task]:
        """The pending tasks of these queues in the order in which the slot should take them."""
        tables = self._tables
        first = [task for queue in queues for task in tables.first_pending(queue, self._looked_at(queue))]
        first.sort(key=lambda task: (task.priority, task.id))
        yield from (task for task in first if self.owns(task))
        seen = {task.id for task in first}
        for queue in sorted(queue for queue in queues if tables.queues[queue].partitions is not None):
            for key, one in sorted(tables.keys_of[queue].items()):
                if self._is_own(one):
                    yield from (task for task in tables.pending_of(queue, key) if task.id not in seen)
        yield from (task for task in first if not self.owns(task) and self.helps(task))

    def _is_own(self, one: Partition) -> bool:
        return self._name is not None and one.owner == self._name and one.moving_to is None

    def _looked_at(self, queue: str) -> int | None:
        return None if self._tables.queues[queue].partitions is None else LOOK

    def _partitions(self, task: Task) -> Partitioning | None:
        return self._tables.queues[task.queue].partitions
