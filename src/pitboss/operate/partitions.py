"""Queues with partitions as people read and change them: slots with their keys, and keys without a live slot."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pitboss.engines.capabilities import capabilities, partitions_of
from pitboss.engines.protocol import Store
from pitboss.model.assignment import problems, skew, table_pool
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput, NotFound, Refused
from pitboss.model.fleet import live_managers
from pitboss.model.partition import Partition, PartitionChange, Partitioning
from pitboss.model.partition_findings import WaitingKeys
from pitboss.model.partition_gates import Unowned, owner_worker, serving, unowned
from pitboss.model.pool import PoolSpec
from pitboss.model.pool_slot import PoolSlot, slot_name
from pitboss.model.queue import Queue
from pitboss.model.states import State
from pitboss.model.text import counted, listed, ranges
from pitboss.operate.lookup import did_you_mean
from pitboss.operate.queues import find_queue

_EXCEPTIONS = 3


class SlotReading(msgspec.Struct, frozen=True, kw_only=True):
    """A slot with the keys that it owns, and their tasks. `state` is alive, away (kept for a restart) or missing (no
    worker has it). `share` is its part of all unfinished tasks with a key."""

    name: str
    state: str
    worker: str = ""
    node: str = ""
    host: str = ""
    keys: tuple[Partition, ...] = ()
    share: float = 0.0

    def count(self, *states: State) -> int:
        return sum(one.counts.get(state, 0) for one in self.keys for state in states)


class UnownedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that no live slot takes tasks of, and why."""

    key: Partition
    why: Unowned


class PartitionsReading(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with partitions at one moment. `skew` is the largest work of a slot beside the mean."""

    queue: Queue
    spec: Partitioning
    slots: tuple[SlotReading, ...]
    unowned: tuple[UnownedKey, ...]
    skew: float
    led: bool

    @property
    def keys(self) -> dict[str, Partition]:
        found = {one.key: one for slot in self.slots for one in slot.keys}
        return found | {one.key.key: one.key for one in self.unowned}

    @property
    def moving(self) -> list[Partition]:
        return [one for one in self.keys.values() if one.moving_to is not None]


class Unpinned(msgspec.Struct, frozen=True, kw_only=True):
    """A key after the end of its pin: the slot that it was pinned to, and the one that the table gives it."""

    key: Partition
    pinned: str | None
    home: str | None


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """The table of a queue: what is wrong with it, or the lines that say what was checked. `warnings`: it is valid, but
    may not get the workers that it needs."""

    queue: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    skew: float | None = None

    @property
    def valid(self) -> bool:
        return not self.problems


async def read_partitions(store: Store, name: str, now: Moment, *, counts: bool = True) -> PartitionsReading:
    """The slots and keys of a queue. To count the tasks of its keys costs more, the more are unfinished."""
    queue = await find_queue(store, name)
    spec = divided_by(queue)
    verbs = partitions_of(store)
    keys, slots = await verbs.partitions(name, counts=counts), serving(await verbs.slots(), name, spec)
    sessions, led = await store.sessions(), await store.leader() is not None
    hosts = {one.number: one.info.host for one in sessions}
    managers = live_managers(sessions, now)
    total = sum(one.unfinished for one in keys)
    found = []
    for slot_key, slot in _all_slots(spec, keys, slots).items():
        own = tuple(one for one in keys if one.owner == slot_key)
        worker = None if slot is None else owner_worker(managers, slot)
        found.append(
            SlotReading(
                name=slot_key,
                state="missing" if slot is None else "alive" if slot.live else "away",
                worker="" if worker is None else worker[0].name,
                node="" if slot is None else slot.node,
                host="" if slot is None else hosts.get(slot.session, ""),
                keys=own,
                share=sum(one.unfinished for one in own) / total if total else 0.0,
            )
        )
    without = [(one, unowned(name, spec, one, slots, led=led)) for one in keys]
    return PartitionsReading(
        queue=queue,
        spec=spec,
        slots=tuple(found),
        unowned=tuple(UnownedKey(key=one, why=why) for one, why in without if why is not None),
        skew=skew([one.share for one in found]),
        led=led,
    )


async def read_waiting_keys(store: Store, queues: Sequence[Queue]) -> list[WaitingKeys]:
    """The keys with waiting tasks that no live slot takes, by queue and cause. Tasks are counted only if there are any
    such keys."""
    divided = {
        one.name: one.partitions for one in queues if one.partitions and one.partitions.exclusive and one.waiting
    }
    verbs = capabilities(store).partitions
    if verbs is None or not divided:
        return []
    every, led, found = await verbs.slots(), await store.leader() is not None, list[WaitingKeys]()
    for name, spec in divided.items():
        slots = serving(every, name, spec)
        keys = await verbs.partitions(name, counts=False)
        lacking = {one.key: why for one in keys if (why := unowned(name, spec, one, slots, led=led)) is not None}
        if lacking:
            waiting = {one.key: one.waiting for one in await verbs.partitions(name)}
            found += _by_cause(name, {key: why for key, why in lacking.items() if waiting.get(key)}, waiting)
    return found


async def move_key(store: Store, name: str, key: str, slot: str, now: Moment) -> Partition:
    """Give a key to another slot: at once, or when none of its tasks runs."""
    reading = await read_partitions(store, name, now)
    _check_key(reading, key)
    target = find_slot(reading, slot)
    _refuse_undone(reading, key, target)
    return await partitions_of(store).change_partition(name, key, PartitionChange(owner=target))


async def pin_key(store: Store, name: str, key: str, slot: str, now: Moment) -> Partition:
    """Give a key to a slot and keep it there, whatever the table or the work says."""
    reading = await read_partitions(store, name, now)
    _check_key(reading, key)
    target = find_slot(reading, slot)
    return await partitions_of(store).change_partition(name, key, PartitionChange(owner=target, pinned=target))


async def unpin_key(store: Store, name: str, key: str, now: Moment) -> Unpinned:
    """End a pin: the key follows the table or the work again."""
    reading = await read_partitions(store, name, now)
    _check_key(reading, key)
    before = reading.keys.get(key)
    after = await partitions_of(store).change_partition(name, key, PartitionChange(pinned=None))
    return Unpinned(key=after, pinned=None if before is None else before.pinned, home=_home(reading, key))


def validation(
    queue: str, spec: Partitioning, tasks: Mapping[str, float] | None = None, pools: Sequence[PoolSpec] = ()
) -> Validation:
    """Check a table of keys. `tasks` are the unfinished ones by key, for the share of work where no weights are
    declared. `pools` are the declared worker pools, if they are known."""
    if spec.mode != "static":
        return Validation(queue=queue, facts=(f"Mode {spec.mode}: the leader divides the keys {spec.by}",))
    found = problems(spec)
    if found:
        return Validation(queue=queue, problems=tuple(map(str, found)))
    work = spec.weights or tasks or {}
    loads = {number: sum(work.get(key, 0.0) for key in keys) for number, keys in spec.table.items()}
    uneven = skew(loads.values()) if any(loads.values()) else None
    facts, warnings = tuple(_facts(spec, loads, uneven)), tuple(_unmanned(queue, spec, pools))
    return Validation(queue=queue, facts=facts, warnings=warnings, skew=uneven)


def _unmanned(queue: str, spec: Partitioning, pools: Sequence[PoolSpec]) -> Iterator[str]:
    """What the declared worker pools lack for this table."""
    if not pools:
        return
    serving_it = {one.name: one.max_workers for one in pools if one.queues is None or queue in one.queues}
    if spec.pool is not None and spec.pool not in serving_it:
        declared = any(one.name == spec.pool for one in pools)
        why = f"does not serve queue {queue}" if declared else "is declared nowhere"
        yield f"Worker pool {spec.pool} {why}; those that serve it are {listed(sorted(serving_it)) or 'none'}"
        return
    pool = spec.pool or min(serving_it, default="")
    beyond = [number for number in spec.table if number >= serving_it.get(pool, 0)]
    # The pool that is there without a declaration has a worker per core of its host.
    if beyond and pool not in ("", PoolSpec().name):
        slots = f"Slot {beyond[0]} needs" if len(beyond) == 1 else f"Slots {ranges(beyond)} need"
        yield f"{slots} another host or more workers: worker pool {pool} has {counted(serving_it[pool], 'worker')}"


def divided_by(queue: Queue) -> Partitioning:
    """How the queue divides its tasks; refuses one that does not."""
    if queue.partitions is None:
        raise InvalidInput(
            f'queue "{queue.name}" has no partitions',
            why="its tasks have no keys: any worker of the queue takes any of them",
            fix=f'declare them with app.queue("{queue.name}", partition_by="{{…}}")',
        )
    return queue.partitions


def find_slot(reading: PartitionsReading, text: str) -> str:
    """The slot that a person named: "scrapers/3", or "3" if there is one worker pool."""
    known = [one.name for one in reading.slots]
    pools = sorted({name.rpartition("/")[0] for name in known})
    full = f"{pools[0]}/{text}" if text.isdecimal() and len(pools) == 1 else text
    if full in known:
        return full
    raise NotFound(
        f'queue "{reading.queue.name}" has no slot {text}',
        why=f"its slots are {listed(known)}, numbered from 0 on"
        if known
        else "no worker serves it yet, so it has no slots",
        fix=did_you_mean(full, known, f"pitboss partitions show {reading.queue.name} shows the slots"),
    )


def _check_key(reading: PartitionsReading, key: str) -> None:
    table = {one for keys in reading.spec.table.values() for one in keys}
    known = sorted(reading.keys.keys() | table | set(reading.spec.keys))
    if key not in known:
        raise NotFound(
            f'queue "{reading.queue.name}" has no key "{key}"',
            why=f"its keys are {listed(known)}" if known else "no task with a key was put into it yet",
            fix=did_you_mean(key, known, f"pitboss partitions show {reading.queue.name} shows the keys"),
        )


def _refuse_undone(reading: PartitionsReading, key: str, target: str) -> None:
    """A pin and a table stand above a move: the leader would undo it at once."""
    one, name = reading.keys.get(key), reading.queue.name
    if one is not None and one.pinned not in (None, target):
        raise Refused(
            f'key "{key}" cannot be moved to {target}',
            why=f"it is pinned to {one.pinned}, and the leader would move it back",
            fix=f"pitboss partitions pin {name} {key} {target}, or first pitboss partitions pin {name} {key} --off",
        )
    home = _home(reading, key)
    missing = any(each.name == home and each.state == "missing" for each in reading.slots)
    free = reading.spec.on_missing == "reassign" and missing
    if home is not None and home != target and not free:
        raise Refused(
            f'key "{key}" cannot be moved to {target}',
            why=f"the table of queue {name} gives it to {home}, and the leader would move it back",
            fix=f"pitboss partitions pin {name} {key} {target}, or change the table",
        )


def _home(reading: PartitionsReading, key: str) -> str | None:
    """The slot that the table gives this key."""
    pool = reading.spec.pool or min((one.name.rpartition("/")[0] for one in reading.slots), default=None)
    if reading.spec.mode != "static" or pool is None:
        return None
    return next((slot_name(pool, number) for number, keys in reading.spec.table.items() if key in keys), None)


def _all_slots(spec: Partitioning, keys: Sequence[Partition], slots: Sequence[PoolSlot]) -> dict[str, PoolSlot | None]:
    """The slots by name and number: those that a node has, those of the table, and those that still own keys."""
    pool = table_pool(spec, slots)
    named = {one.owner for one in keys if one.owner is not None}
    if pool is not None:
        named |= {slot_name(pool, number) for number in spec.table}
    there: dict[str, PoolSlot | None] = {one.name: one for one in slots}
    return {name: there.get(name) for name in sorted(there.keys() | named, key=by_number)}


def by_number(name: str) -> tuple[str, int]:
    """Orders names of slots by pool and number."""
    pool, _, number = name.rpartition("/")
    return pool, int(number) if number.isdecimal() else 0


def _by_cause(queue: str, lacking: Mapping[str, Unowned], waiting: Mapping[str, int]) -> Iterator[WaitingKeys]:
    for cause in sorted({one.cause for one in lacking.values()}):
        keys = tuple(key for key, why in lacking.items() if why.cause == cause)
        yield WaitingKeys(queue=queue, keys=keys, waiting=sum(waiting[key] for key in keys), why=lacking[keys[0]])


def _facts(spec: Partitioning, loads: Mapping[int, float], uneven: float | None) -> Iterator[str]:
    sizes = {number: len(keys) for number, keys in spec.table.items()}
    yield counted(len(sizes), "slot")
    yield _sizes(sizes)
    yield f"{sum(sizes.values()):,} total keys"
    yield "No duplicates"
    yield "No missing keys" if spec.keys else "Missing keys are not checked: keys= is not declared"
    if uneven is not None:
        largest = max(loads, key=lambda number: loads[number])
        by = "weight" if spec.weights else "waiting tasks"
        yield f"The largest slot ({largest}) has {uneven:.2f} times the mean work, by {by}"


def _sizes(sizes: Mapping[int, int]) -> str:
    """ "5 keys per slot (slot 4 has 6)"."""
    ((usual, _),) = Counter(sizes.values()).most_common(1)
    others = [f"slot {number} has {size:,}" for number, size in sizes.items() if size != usual]
    more = f" ({listed(others, _EXCEPTIONS)})" if others else ""
    return f"{counted(usual, 'key')} per slot{more}"
