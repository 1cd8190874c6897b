"""An engine without pools and batches passes what every engine passes: the core asks for nothing else."""

from typing import Any

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import Batches, Leases, Resources
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import CoreConformance, MakeEngine

LACKING = {
    name
    for protocol in (Resources, Leases, Batches)
    for name in vars(protocol)
    if not name.startswith("_") and callable(getattr(protocol, name))
}


class Plain:
    """The memory engine as one would know it that has no optional protocol."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        if name in LACKING:
            raise AttributeError(name)
        return getattr(self._engine, name)


class TestPlain(CoreConformance):
    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        opened: list[Plain] = []

        async def make(clock: FakeClock) -> Plain:
            if not opened:
                opened.append(Plain(MemoryEngine(clock=clock)))
            return opened[0]

        return make


def test_the_plain_engine_has_none_of_them() -> None:
    plain = Plain(MemoryEngine(clock=FakeClock()))
    assert {"acquire", "create_batch", "resources"} <= LACKING
    assert not any(isinstance(plain, protocol) for protocol in (Resources, Leases, Batches))
