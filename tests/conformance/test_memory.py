"""The memory engine passes the suite that is written against it."""

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import Conformance, MakeEngine


class TestMemory(Conformance):
    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        opened: list[MemoryEngine] = []

        async def make(clock: FakeClock) -> MemoryEngine:
            # The store is the object itself.
            if not opened:
                opened.append(MemoryEngine(clock=clock))
            return opened[0]

        return make
