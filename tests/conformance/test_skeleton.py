"""The skeleton engine passes the core suite: what the kit gives is enough for an engine on any store of bytes."""

import ast
from pathlib import Path

import msgspec
import pytest

from pitboss.engines.batch_protocol import Batches
from pitboss.engines.protocol import Store
from pitboss.engines.resource_protocol import Leases, Resources
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import HandlerInfo
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import CoreConformance, MakeEngine
from tests.conformance import skeleton_engine
from tests.conformance.skeleton_engine import ByteStore, SkeletonEngine

MAX_LINES = 600
SOURCE = Path(skeleton_engine.__file__).read_text(encoding="utf-8")


class TestSkeleton(CoreConformance):
    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        store = ByteStore()

        async def make(clock: FakeClock) -> SkeletonEngine:
            engine = SkeletonEngine(store, clock=clock)
            await engine.open()
            return engine

        return make


def test_it_has_the_core_protocols_and_no_other() -> None:
    core: Store = SkeletonEngine(ByteStore(), clock=FakeClock())
    assert not any(isinstance(core, protocol) for protocol in (Resources, Leases, Batches))


def test_it_stays_short() -> None:
    assert len(SOURCE.splitlines()) <= MAX_LINES


def test_it_uses_nothing_of_another_engine() -> None:
    modules = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    ours = {name for name in modules if name.startswith(("pitboss", "tests"))}
    shared = ("pitboss.model.", "pitboss.engines.protocol.", "pitboss.engines.scan")
    assert ours
    assert [name for name in sorted(ours) if not name.startswith(shared)] == []


def test_it_reaches_its_store_only_by_get_set_and_compare_and_swap() -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(SOURCE))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "store"
    }
    assert used
    assert used <= {"get", "set", "compare_and_swap"}
    assert {name for name in vars(ByteStore) if not name.startswith("_")} == {"get", "set", "compare_and_swap"}


class Contested(ByteStore):
    """Another engine writes between a transaction's read and its swap, the first few times."""

    def __init__(self, rivals: int) -> None:
        super().__init__()
        self.rivals, self.refused = rivals, 0

    def compare_and_swap(self, key: bytes, old: bytes | None, new: bytes) -> bool:
        if self.rivals:
            self.rivals -= 1
            document = skeleton_engine.Document() if old is None else _decoded(old)
            document.place(NewTask(id=f"rival-{self.rivals}", handler="job"), 1)
            self.set(key, msgspec.msgpack.encode(document))
        swapped = super().compare_and_swap(key, old, new)
        self.refused += not swapped
        return swapped


def _decoded(value: bytes) -> skeleton_engine.Document:
    return SkeletonEngine(ByteStore(), clock=FakeClock()).decode(value)


async def test_a_transaction_that_was_overtaken_starts_again() -> None:
    store = Contested(rivals=3)
    engine = SkeletonEngine(store, clock=FakeClock())
    placed = await engine.put([NewTask(id="mine", handler="job")])
    assert [one.created for one in placed] == [True]
    assert store.refused == 3
    found = (await engine.find(EVERYTHING)).tasks
    assert sorted(task.id for task in found) == ["mine", "rival-0", "rival-1", "rival-2"]


async def test_a_transaction_that_starts_again_reads_its_arguments_again() -> None:
    engine = SkeletonEngine(Contested(rivals=1), clock=FakeClock())
    await engine.register(HandlerInfo(name=name) for name in "ab")
    assert [handler.name for handler in await engine.handlers()] == ["a", "b"]
