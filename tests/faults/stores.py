"""The stores that faults are tried on: each call of `open` is one more process on the same store."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.protocol import Failpoint, FullStore
from pitboss.engines.sqlite import SqliteEngine
from pitboss.testing.clock import FakeClock
from pitboss.testing.failpoints import PARTITION_VERBS, SCARCE_VERBS, VERBS, names
from tests.servers.schema import EmptiedSchema

# Answers the address of an empty store of a kind: "sqlite" or "postgres".
MakeUrl = Callable[[str], str]
OpenWithFaults = Callable[[FakeClock, Failpoint], Awaitable[FullStore]]

# PostgreSQL renews by one statement that commits itself: there is no place between writing and committing.
POINTS: dict[str, list[str]] = {
    "memory": names(sql=False, verbs=VERBS),
    "sqlite": names(sql=True, verbs=VERBS),
    "postgres": [name for name in names(sql=True, verbs=VERBS) if name != "renew.commit"],
}
SCARCE_POINTS: dict[str, list[str]] = {
    "memory": names(sql=False, verbs=SCARCE_VERBS),
    "sqlite": names(sql=True, verbs=SCARCE_VERBS),
    "postgres": names(sql=True, verbs=SCARCE_VERBS),
}

PARTITION_POINTS: dict[str, list[str]] = {
    "memory": names(sql=False, verbs=PARTITION_VERBS),
    "sqlite": names(sql=True, verbs=PARTITION_VERBS),
    "postgres": names(sql=True, verbs=PARTITION_VERBS),
}


def memory() -> OpenWithFaults:
    opened: list[MemoryEngine] = []

    async def open_store(clock: FakeClock, failpoint: Failpoint) -> FullStore:
        # Its store is the object itself, so all processes share it.
        if not opened:
            opened.append(MemoryEngine(clock=clock, failpoint=failpoint))
        return opened[0]

    return open_store


def sqlite(file: Path) -> OpenWithFaults:
    async def open_store(clock: FakeClock, failpoint: Failpoint) -> FullStore:
        engine = SqliteEngine(file, clock=clock, failpoint=failpoint)
        await engine.open()
        return engine

    return open_store


def postgres(schema: EmptiedSchema) -> OpenWithFaults:
    schema.empty()

    async def open_store(clock: FakeClock, failpoint: Failpoint) -> FullStore:
        engine = PostgresEngine(
            schema.dsn, schema=schema.name, clock=clock, failpoint=failpoint, connections=2, listen=False
        )
        await engine.open()
        return engine

    return open_store
