"""One suite for every engine. To prove an engine, write a subclass in a test module:

    class TestMine(DurableConformance):
        @pytest.fixture
        def make_engine(self, tmp_path):
            async def make(clock):
                engine = MyEngine(tmp_path / "store", clock=clock)
                await engine.open()
                return engine
            return make

Every call of `make` within one test opens the same store, which is empty at first. The bench closes the engines.
An engine without some of the protocols combines what it has: `class TestMine(CoreConformance, BatchConformance)`. While
you write one, take single subjects: `class TestMine(Subject, Putting, Claiming)`.
"""

import pytest

from pitboss.testing.conformance.access import ApiKeys, Auditing, RepeatedRequests
from pitboss.testing.conformance.acquiring import Acquiring, FurtherUses, LeaseTimes
from pitboss.testing.conformance.alerts import AlertNotesKeeping, Silencing
from pitboss.testing.conformance.batch_endings import (
    CancellingBatches,
    DeletingBatches,
    EndingBatches,
    Notices,
    Requeueing,
)
from pitboss.testing.conformance.batching import BatchFigures, CreatingBatches, DrawingItems, LargeBatches
from pitboss.testing.conformance.bench import Bench, MakeEngine
from pitboss.testing.conformance.blaming import Blacklisting, Forgiveness, Reports
from pitboss.testing.conformance.bulk import Bulk
from pitboss.testing.conformance.choosing import Labels, Rotation, StickyKeys, Strategies
from pitboss.testing.conformance.claiming import Claiming
from pitboss.testing.conformance.comparing import Comparing, SendingAway
from pitboss.testing.conformance.control import Cancelling, ChangingTasks, Pruning, Retrying
from pitboss.testing.conformance.declaring import Declaring
from pitboss.testing.conformance.desired import DesiredState
from pitboss.testing.conformance.diagnosing import Diagnosing
from pitboss.testing.conformance.events import EventLog, Publishing
from pitboss.testing.conformance.failing import Failing
from pitboss.testing.conformance.fencing import Fencing
from pitboss.testing.conformance.figures import DueTimes, Flows, FlowsOfOtherActs, KeepingSamples, RollingUpFlows
from pitboss.testing.conformance.filters import Filtering
from pitboss.testing.conformance.giving_back import GivingBack
from pitboss.testing.conformance.handlers import HandlerRegistry
from pitboss.testing.conformance.happenings import HappeningLog
from pitboss.testing.conformance.keyed_claims import KeyedClaims, LongLines
from pitboss.testing.conformance.keyed_limits import KeyedBatches, KeyedRates, KeyedResources, MaxPerKey
from pitboss.testing.conformance.lanes import Lanes, MovingBatches, StartingBatches, SweepingLanes
from pitboss.testing.conformance.leading import LeaderDuties, Leading
from pitboss.testing.conformance.leasing import Leasing, MemberLimits, Shortages
from pitboss.testing.conformance.ledger import LedgerReading
from pitboss.testing.conformance.lists import Lists, ListsOfItems, ListsOfKeys, ListsOfMembers
from pitboss.testing.conformance.member_history import MemberHistory
from pitboss.testing.conformance.moving import MovedUses, UsesAtOnce
from pitboss.testing.conformance.open_uses import ChangedWhileOpen, EndingUses, LateUses, OpenUses
from pitboss.testing.conformance.operations import ChangingOperations, Operating, OperationRates
from pitboss.testing.conformance.order_keys import OrderKeys
from pitboss.testing.conformance.owners import Assigning, ChangingPartitions, WorkerSlots
from pitboss.testing.conformance.partitions import CountingKeys, PartitionKeys
from pitboss.testing.conformance.pausing import PausingBatches, ResumingBatches
from pitboss.testing.conformance.pool_rules import RulesOfPools
from pitboss.testing.conformance.pools import ChangingMembers, DeclaringPools, PoolMembers
from pitboss.testing.conformance.putting import Putting
from pitboss.testing.conformance.queues import QueueSettings
from pitboss.testing.conformance.rates import Rates
from pitboss.testing.conformance.reclaiming import Reclaiming
from pitboss.testing.conformance.remote_claims import Ordering, RepeatedClaims, TaskTypes, TimeLimits
from pitboss.testing.conformance.removing import RemovingMembers
from pitboss.testing.conformance.renewing import Renewing
from pitboss.testing.conformance.schedules import FiringSchedules, ScheduleKeeping
from pitboss.testing.conformance.schema import Maintaining, Reopening, SchemaKeeping
from pitboss.testing.conformance.sessions import SessionKeeping
from pitboss.testing.conformance.settling import Settling
from pitboss.testing.conformance.store_size import StoreLimits
from pitboss.testing.conformance.totals import TotalsOfFlows, TotalsOfSamples
from pitboss.testing.conformance.uniqueness import Uniqueness
from pitboss.testing.conformance.values import Values
from pitboss.testing.conformance.waiting import Waiting
from pitboss.testing.conformance.wall_times import WallTimes


class Subject:
    """What every test class of the suite needs: the fixture `bench`."""

    pytestmark = pytest.mark.fresh_loop

    @pytest.fixture
    def bench(self, make_engine: MakeEngine) -> Bench:
        return Bench(make_engine)


class CoreConformance(
    Subject,
    Bulk,
    Claiming,
    Cancelling,
    ChangingTasks,
    Pruning,
    Retrying,
    DesiredState,
    DueTimes,
    Failing,
    Fencing,
    Filtering,
    HandlerRegistry,
    LeaderDuties,
    Leading,
    LedgerReading,
    Lists,
    Ordering,
    OrderKeys,
    Putting,
    QueueSettings,
    Rates,
    Reclaiming,
    Renewing,
    RepeatedClaims,
    SessionKeeping,
    Settling,
    TaskTypes,
    TimeLimits,
    Uniqueness,
    Values,
    Waiting,
):
    """For every engine: `pitboss.engines.protocol.Store` names the core protocols."""


class ResourceConformance(
    DeclaringPools,
    RulesOfPools,
    RemovingMembers,
    PoolMembers,
    ChangingMembers,
    Leasing,
    MemberLimits,
    Shortages,
    Strategies,
    Labels,
    Rotation,
    StickyKeys,
    Reports,
    Blacklisting,
    Forgiveness,
    Comparing,
    SendingAway,
    MemberHistory,
    GivingBack,
    Acquiring,
    LeaseTimes,
    FurtherUses,
    MovedUses,
    UsesAtOnce,
    OpenUses,
    EndingUses,
    ChangedWhileOpen,
    LateUses,
    ListsOfMembers,
):
    """For an engine with `Resources` and `Leases`."""


class BatchConformance(
    CreatingBatches,
    DrawingItems,
    BatchFigures,
    LargeBatches,
    Lanes,
    MovingBatches,
    StartingBatches,
    SweepingLanes,
    PausingBatches,
    ResumingBatches,
    EndingBatches,
    Notices,
    CancellingBatches,
    Requeueing,
    DeletingBatches,
    ListsOfItems,
):
    """For an engine with `Batches`."""


class AccessConformance(ApiKeys, Auditing, RepeatedRequests):
    """For an engine with `Access`."""


class DeclaredConformance(Declaring, ScheduleKeeping, FiringSchedules, Publishing, EventLog):
    """For an engine with `Declarations`, `Schedules` and `Events`."""


class PartitionConformance(
    PartitionKeys,
    CountingKeys,
    WorkerSlots,
    KeyedClaims,
    LongLines,
    MaxPerKey,
    KeyedRates,
    KeyedResources,
    KeyedBatches,
    Assigning,
    ChangingPartitions,
    ListsOfKeys,
):
    """For an engine with `Partitions`, and with resources, batches and declarations."""


class OperationConformance(Operating, OperationRates, ChangingOperations):
    """For an engine with `Operations`, and with batches and an audit log."""


class FigureConformance(Flows, FlowsOfOtherActs, RollingUpFlows, KeepingSamples, TotalsOfFlows, TotalsOfSamples):
    """For an engine with `Figures`, and with batches and declarations."""


class Conformance(
    CoreConformance,
    ResourceConformance,
    BatchConformance,
    AccessConformance,
    DeclaredConformance,
    PartitionConformance,
    OperationConformance,
    FigureConformance,
    HappeningLog,
    StoreLimits,
    AlertNotesKeeping,
    Silencing,
    Diagnosing,
    WallTimes,
):
    """For an engine with all of these protocols, and `Diagnosis`."""


class DurableConformance(Conformance, Reopening, SchemaKeeping, Maintaining):
    """For an engine with all protocols whose store outlives the process; it has `Schema`, `Outages` and `Maintenance`
    too."""


__all__ = [
    "AccessConformance",
    "Acquiring",
    "AlertNotesKeeping",
    "ApiKeys",
    "Assigning",
    "Auditing",
    "BatchConformance",
    "BatchFigures",
    "Bench",
    "Blacklisting",
    "Bulk",
    "Cancelling",
    "CancellingBatches",
    "ChangedWhileOpen",
    "ChangingMembers",
    "ChangingOperations",
    "ChangingPartitions",
    "ChangingTasks",
    "Claiming",
    "Comparing",
    "Conformance",
    "CoreConformance",
    "CountingKeys",
    "CreatingBatches",
    "DeclaredConformance",
    "Declaring",
    "DeclaringPools",
    "DeletingBatches",
    "DesiredState",
    "Diagnosing",
    "DrawingItems",
    "DueTimes",
    "DurableConformance",
    "EndingBatches",
    "EndingUses",
    "EventLog",
    "Failing",
    "Fencing",
    "FigureConformance",
    "Filtering",
    "FiringSchedules",
    "Flows",
    "FlowsOfOtherActs",
    "Forgiveness",
    "FurtherUses",
    "GivingBack",
    "HandlerRegistry",
    "HappeningLog",
    "KeepingSamples",
    "KeyedBatches",
    "KeyedClaims",
    "KeyedRates",
    "KeyedResources",
    "Labels",
    "Lanes",
    "LargeBatches",
    "LateUses",
    "LeaderDuties",
    "Leading",
    "LeaseTimes",
    "Leasing",
    "LedgerReading",
    "LongLines",
    "Maintaining",
    "MakeEngine",
    "MaxPerKey",
    "MemberHistory",
    "MemberLimits",
    "MovedUses",
    "MovingBatches",
    "Notices",
    "OpenUses",
    "Operating",
    "OperationConformance",
    "OperationRates",
    "OrderKeys",
    "Ordering",
    "PartitionConformance",
    "PartitionKeys",
    "PausingBatches",
    "PoolMembers",
    "Pruning",
    "Publishing",
    "Putting",
    "QueueSettings",
    "Rates",
    "Reclaiming",
    "RemovingMembers",
    "Renewing",
    "Reopening",
    "RepeatedClaims",
    "RepeatedRequests",
    "Reports",
    "Requeueing",
    "ResourceConformance",
    "ResumingBatches",
    "Retrying",
    "RollingUpFlows",
    "Rotation",
    "RulesOfPools",
    "ScheduleKeeping",
    "SchemaKeeping",
    "SendingAway",
    "SessionKeeping",
    "Settling",
    "Shortages",
    "Silencing",
    "StartingBatches",
    "StickyKeys",
    "StoreLimits",
    "Strategies",
    "Subject",
    "SweepingLanes",
    "TaskTypes",
    "TimeLimits",
    "TotalsOfFlows",
    "TotalsOfSamples",
    "Uniqueness",
    "UsesAtOnce",
    "Values",
    "Waiting",
    "WallTimes",
    "WorkerSlots",
]
