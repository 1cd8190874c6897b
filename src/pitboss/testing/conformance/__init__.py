"""One suite for every engine. To prove an engine, subclass it in a test module:

    class TestMine(Conformance):
        @pytest.fixture
        def make_engine(self, tmp_path):
            async def make(clock):
                engine = MyEngine(tmp_path / "store", clock=clock)
                await engine.open()
                return engine
            return make

Every call of `make` within one test opens the same store, which is empty at first. The bench closes the engines.
An engine that has not all protocols takes the subjects it has: `class TestMine(Subject, Putting, Claiming)`.
"""

import pytest

from pitboss.testing.conformance.bench import Bench, MakeEngine, Store
from pitboss.testing.conformance.claiming import Claiming
from pitboss.testing.conformance.fencing import Fencing
from pitboss.testing.conformance.handlers import HandlerRegistry
from pitboss.testing.conformance.putting import Putting
from pitboss.testing.conformance.reclaiming import Reclaiming
from pitboss.testing.conformance.renewing import Renewing
from pitboss.testing.conformance.sessions import SessionKeeping
from pitboss.testing.conformance.settling import Settling
from pitboss.testing.conformance.waiting import Waiting


class Subject:
    """What the tests of every subject stand on."""

    pytestmark = pytest.mark.fresh_loop

    @pytest.fixture
    def bench(self, make_engine: MakeEngine) -> Bench:
        return Bench(make_engine)


class Conformance(
    Subject,
    Claiming,
    Fencing,
    HandlerRegistry,
    Putting,
    Reclaiming,
    Renewing,
    SessionKeeping,
    Settling,
    Waiting,
):
    """All of it."""


__all__ = [
    "Bench",
    "Claiming",
    "Conformance",
    "Fencing",
    "HandlerRegistry",
    "MakeEngine",
    "Putting",
    "Reclaiming",
    "Renewing",
    "SessionKeeping",
    "Settling",
    "Store",
    "Subject",
    "Waiting",
]
