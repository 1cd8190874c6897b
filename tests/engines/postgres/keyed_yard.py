"""Short calls for tests of partitions: a queue that has them, sessions with slots, owners of keys."""

from collections.abc import Mapping
from typing import Any

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.canonical import to_json
from pitboss.model.declared import Declared
from pitboss.model.partition import Partitioning
from pitboss.model.pool_slot import PoolSlot, slot_name
from pitboss.model.queue import QueueSettings
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import NewTask
from tests.engines.postgres.yard import Yard

WORK = "work"


async def divide(yard: Yard, mode: str = "balanced", *, max_per_key: int | None = None, **options: Any) -> None:
    """Give the queue partitions by the parameter `k`."""
    spec = Partitioning(**{"by": "{k}", "mode": mode} | options)
    settings = QueueSettings(partitions=spec, max_per_key=max_per_key)
    declared = Declared(app="app", queues={WORK: settings})
    assert await yard.engine.declare(declared, session=yard.session.number)


def keyed(yard: Yard, key: object, **options: Any) -> NewTask:
    return yard.new(**{"queue": WORK, "params": to_json({"k": key})} | options)


async def seat(yard: Yard, slots: int, session: int | None = None, node: str = "node") -> list[PoolSlot]:
    return await yard.engine.take_slots(session or yard.session.number, "default", node, range(slots))


async def give(yard: Yard, owners: Mapping[str, int]) -> int:
    """As the leader does; the yard's session leads."""
    term = (await yard.engine.campaign(yard.session.number)).term
    named = {key: slot_name("default", number) for key, number in owners.items()}
    return await yard.engine.assign(WORK, named, term=term)


async def claim(
    yard: Yard,
    *numbers: int | None,
    free: int = 1,
    session: int | None = None,
    engine: PostgresEngine | None = None,
    **options: Any,
) -> Claimed:
    """A slot for each of these numbers."""
    slots = [Slot(**{"free": free, "number": number, "queues": (WORK,)} | options) for number in numbers]
    request = ClaimRequest(session=session or yard.session.number, slots=tuple(slots))
    return await (engine or yard.engine).claim(request)
