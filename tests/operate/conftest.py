"""Stores for the tests of operate: one in memory for most, every engine for those that ask for `make_engine`."""

from pathlib import Path
from typing import Any

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.protocol import FullStore
from pitboss.engines.sqlite import SqliteEngine
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import MakeEngine
from tests.operate.bench import Bench


@pytest.fixture
def store() -> Bench:
    """An empty store in memory."""
    return Bench()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make_engine(request: pytest.FixtureRequest, tmp_path: Path) -> MakeEngine:
    shared: list[MemoryEngine] = []
    schema = request.getfixturevalue("emptied_schema") if request.param == "postgres" else None
    if schema is not None:
        schema.empty()

    async def make(clock: FakeClock) -> Any:
        engine: FullStore
        if request.param == "memory":
            shared.append(MemoryEngine(clock=clock))
            return shared[0]
        if schema is None:
            engine = SqliteEngine(tmp_path / "store.db", clock=clock)
        else:
            engine = PostgresEngine(schema.dsn, schema=schema.name, clock=clock)
        await engine.open()
        return engine

    return make
