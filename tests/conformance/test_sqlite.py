"""The SQLite engine passes the suite, each engine of a test on the same file."""

from pathlib import Path

import pytest

from pitboss.engines.sqlite import SqliteEngine
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import DurableConformance, MakeEngine


class TestSqlite(DurableConformance):
    @pytest.fixture
    def make_engine(self, tmp_path: Path) -> MakeEngine:
        async def make(clock: FakeClock) -> SqliteEngine:
            engine = SqliteEngine(tmp_path / "store.db", clock=clock)
            await engine.open()
            return engine

        return make
