"""The engines that run side by side, each with an empty store of its own."""

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.protocol import FullStore
from pitboss.engines.sqlite import SqliteEngine
from pitboss.testing.clock import FakeClock
from tests.servers.schema import EmptiedSchema

# Takes the shared clock and an empty folder; returns an open engine.
Open = Callable[[FakeClock, Path], Awaitable[FullStore]]


async def open_memory(clock: FakeClock, folder: Path) -> FullStore:
    return MemoryEngine(clock=clock)


async def open_sqlite(clock: FakeClock, folder: Path) -> FullStore:
    engine = SqliteEngine(folder / "store.db", clock=clock)
    await engine.open()
    return engine


def postgres_opener(dsn: str) -> Open:
    """Each store gets its own schema: much quicker than its own database."""
    numbers = itertools.count(1)

    async def open_postgres(clock: FakeClock, folder: Path) -> FullStore:
        engine = PostgresEngine(dsn, schema=f"arena_{next(numbers)}", clock=clock, connections=1)
        await engine.open()
        return engine

    return open_postgres


def emptied_opener(schema: EmptiedSchema) -> Open:
    """All stores use one schema, one after the other: much quicker than their own schemas."""

    async def open_postgres(clock: FakeClock, folder: Path) -> FullStore:
        schema.empty()
        engine = PostgresEngine(schema.dsn, schema=schema.name, clock=clock, connections=1)
        await engine.open()
        return engine

    return open_postgres
