"""The engines that are driven side by side, each with an empty store of its own."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.sqlite import SqliteEngine
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import Store

# Takes the shared clock and an empty folder; answers an open engine.
Open = Callable[[FakeClock, Path], Awaitable[Store]]


async def open_memory(clock: FakeClock, folder: Path) -> Store:
    return MemoryEngine(clock=clock)


async def open_sqlite(clock: FakeClock, folder: Path) -> Store:
    engine = SqliteEngine(folder / "store.db", clock=clock)
    await engine.open()
    return engine


# The first one is the oracle. A second one of the same kind proves that nothing in the comparison is left to chance.
ORACLE: Open = open_memory
CONTESTANTS: dict[str, Open] = {"memory": open_memory, "sqlite": open_sqlite}
