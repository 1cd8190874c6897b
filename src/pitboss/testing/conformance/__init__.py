"""One suite for every engine. To prove an engine, subclass it in a test module:

    class TestMine(DurableConformance):
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
from pitboss.testing.conformance.bulk import Bulk
from pitboss.testing.conformance.claiming import Claiming
from pitboss.testing.conformance.control import Cancelling, Pruning, Retrying
from pitboss.testing.conformance.desired import DesiredState
from pitboss.testing.conformance.diagnosing import Diagnosing
from pitboss.testing.conformance.fencing import Fencing
from pitboss.testing.conformance.filters import Filtering
from pitboss.testing.conformance.handlers import HandlerRegistry
from pitboss.testing.conformance.leading import LeaderDuties, Leading
from pitboss.testing.conformance.ledger import LedgerReading
from pitboss.testing.conformance.putting import Putting
from pitboss.testing.conformance.queues import QueueSettings
from pitboss.testing.conformance.rates import Rates
from pitboss.testing.conformance.reclaiming import Reclaiming
from pitboss.testing.conformance.renewing import Renewing
from pitboss.testing.conformance.schema import Reopening, SchemaKeeping
from pitboss.testing.conformance.sessions import SessionKeeping
from pitboss.testing.conformance.settling import Settling
from pitboss.testing.conformance.uniqueness import Uniqueness
from pitboss.testing.conformance.values import Values
from pitboss.testing.conformance.waiting import Waiting


class Subject:
    """What the tests of every subject stand on."""

    pytestmark = pytest.mark.fresh_loop

    @pytest.fixture
    def bench(self, make_engine: MakeEngine) -> Bench:
        return Bench(make_engine)


class Conformance(
    Subject,
    Bulk,
    Claiming,
    Cancelling,
    Pruning,
    Retrying,
    DesiredState,
    Diagnosing,
    Fencing,
    Filtering,
    HandlerRegistry,
    LeaderDuties,
    Leading,
    LedgerReading,
    Putting,
    QueueSettings,
    Rates,
    Reclaiming,
    Renewing,
    SessionKeeping,
    Settling,
    Uniqueness,
    Values,
    Waiting,
):
    """What every engine passes."""


class DurableConformance(Conformance, Reopening, SchemaKeeping):
    """What an engine passes whose store outlives it."""


__all__ = [
    "Bench",
    "Bulk",
    "Cancelling",
    "Claiming",
    "Conformance",
    "DesiredState",
    "Diagnosing",
    "DurableConformance",
    "Fencing",
    "Filtering",
    "HandlerRegistry",
    "LeaderDuties",
    "Leading",
    "LedgerReading",
    "MakeEngine",
    "Pruning",
    "Putting",
    "QueueSettings",
    "Rates",
    "Reclaiming",
    "Renewing",
    "Reopening",
    "Retrying",
    "SchemaKeeping",
    "SessionKeeping",
    "Settling",
    "Store",
    "Subject",
    "Uniqueness",
    "Values",
    "Waiting",
]
