"""Short calls for tests of partitions: a queue that has them, slots of workers, and owners of keys."""

from collections.abc import Mapping, Sequence
from typing import Any

from pitboss.model.canonical import to_json
from pitboss.model.declared import Declared
from pitboss.model.partition import Partition, PartitionChange, Partitioning
from pitboss.model.pool_slot import PoolSlot, slot_name
from pitboss.model.queue import QueueSettings
from pitboss.model.session import Claimed, Session, Slot
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, Task
from pitboss.testing.conformance.bench import Bench

WORK, POOL, NODE = "work", "default", "node"
EXCLUSIVE = ("balanced", "static")


async def divide(bench: Bench, *queues: str, max_per_key: int | None = None, **options: Any) -> None:
    """Declare these queues (by default, one) with partitions by the parameter `k`."""
    settings = QueueSettings(partitions=Partitioning(**{"by": "{k}"} | options), max_per_key=max_per_key)
    await declare(bench, dict.fromkeys(queues or (WORK,), settings))


async def declare(bench: Bench, queues: Mapping[str, QueueSettings], **options: Any) -> None:
    declared = Declared(app="app", queues=dict(queues), **options)
    assert await bench.store.declare(declared, session=bench.me.number)
    await bench.look()


async def seat(bench: Bench, *places: int, session: Session | None = None, **options: Any) -> list[PoolSlot]:
    """The slots of a session's workers at these places of the pool."""
    pool, node = options.pop("pool", POOL), options.pop("node", NODE)
    taken = await bench.store.take_slots((session or bench.me).number, pool, node, places, **options)
    await bench.look()
    return taken


async def give(bench: Bench, owners: Mapping[str, int], queue: str = WORK) -> int:
    """Let the leader, who is this session, give keys to slots."""
    term = (await bench.store.campaign(bench.me.number)).term
    named = {key: slot_name(POOL, number) for key, number in owners.items()}
    changed = await bench.store.assign(queue, named, term=term)
    await bench.look()
    return changed


async def two_owners(bench: Bench, mode: str = "static", **options: Any) -> None:
    """A queue with partitions; slot 0 owns the key "a", slot 1 the key "b"; both are of this session."""
    await divide(bench, mode=mode, **options)
    await seat(bench, 0, 1)
    await give(bench, {"a": 0, "b": 1})


async def behind(bench: Bench, mode: str, count: int, **options: int) -> None:
    """As `two_owners`, with that many tasks of the key "b" before all others; slot 0 owns "x" and "y" too."""
    bench.watching = False
    await two_owners(bench, mode, **options)
    await give(bench, {"x": 0, "y": 0})
    await bench.put(*(new(bench, "b") for _ in range(count)))


def params(key: object) -> str:
    return to_json({"k": key})


def new(bench: Bench, key: object, **options: Any) -> NewTask:
    return bench.new(**{"queue": WORK, "params": params(key)} | options)


async def add(bench: Bench, key: object, **options: Any) -> Task:
    return await bench.add(**{"queue": WORK, "params": params(key)} | options)


async def asked(
    bench: Bench, number: int | None, free: int = 1, session: Session | None = None, **slot: Any
) -> Claimed:
    """Claim for a slot with this number."""
    return await bench.ask(Slot(**{"free": free, "number": number, "queues": (WORK,)} | slot), session=session)


async def given(
    bench: Bench, number: int | None, free: int = 1, session: Session | None = None, **slot: Any
) -> list[Claim]:
    return (await asked(bench, number, free, session, **slot)).claims


def ids(tasks: Sequence[Task | Claim | NewTask]) -> list[str]:
    return [task.id for task in tasks]


async def change(bench: Bench, key: str, **changes: Any) -> Partition:
    changed = await bench.store.change_partition(WORK, key, PartitionChange(**changes))
    await bench.look()
    return changed


async def row(bench: Bench, key: str, queue: str = WORK) -> Partition:
    return next(one for one in await bench.store.partitions(queue) if one.key == key)


async def owners(bench: Bench, queue: str = WORK) -> dict[str, str | None]:
    return {one.key: one.owner for one in await bench.store.partitions(queue, counts=False)}


async def counts(bench: Bench, queue: str = WORK) -> dict[str, dict[State, int]]:
    return {one.key: one.counts for one in await bench.store.partitions(queue)}
