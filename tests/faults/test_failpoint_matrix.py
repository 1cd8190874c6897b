"""Every failpoint × every fault × every engine: the fault bites, the store heals, and every promise was kept."""

from collections.abc import Callable
from itertools import count, product
from pathlib import Path

import pytest

from pitboss.engines.protocol import FullStore
from pitboss.testing.clock import FakeClock
from pitboss.testing.failpoints import Action, Failpoints
from tests.faults import stores
from tests.faults.stores import POINTS, SCARCE_POINTS, OpenWithFaults
from tests.races.scarce_workload import ScarceWorkload
from tests.races.workload import Workload, told
from tests.servers.postgres import PostgresServer

ACTIONS: tuple[Action, ...] = ("kill", "lost", "delay")
CASES = [
    (engine, name, action)
    for points in (POINTS, SCARCE_POINTS)
    for engine, names in points.items()
    for name, action in product(names, ACTIONS)
]
STEPS = 45
TRIES = 8
# Longer than a session of the workload lives.
PAUSE = 12.0

MakeStore = Callable[[str], OpenWithFaults]


@pytest.fixture(scope="session")
def fault_database(postgres_server: PostgresServer) -> str:
    """One database for the whole matrix: a schema costs a tenth of a database."""
    return postgres_server.create_database()


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """An empty store of a kind, at each call."""
    numbers = count()

    def make(engine: str) -> OpenWithFaults:
        if engine == "memory":
            return stores.memory()
        if engine == "sqlite":
            return stores.sqlite(tmp_path / f"{next(numbers)}.db")
        schema = "".join(char if char.isalnum() else "_" for char in request.node.callspec.id)
        return stores.postgres(request.getfixturevalue("fault_database"), f"{schema}_{next(numbers)}")

    return make


async def run_with_fault(open_with: OpenWithFaults, name: str, action: Action, seed: int) -> Failpoints:
    clock = FakeClock()
    points = Failpoints(pause=clock.advance)
    points.plan(name, action, nth=1 + seed % 2, seconds=PAUSE)

    async def open_store(_: FakeClock) -> FullStore:
        return await open_with(clock, points)

    kind = ScarceWorkload if name in SCARCE_POINTS["sqlite"] else Workload
    found = await kind(open_store, seed, clock=clock, heal=points.heal).run(STEPS)
    assert not found, f"{action} at {name}, {told(found, seed)}"
    return points


@pytest.mark.parametrize(("engine", "name", "action"), CASES, ids=["-".join(case) for case in CASES])
async def test_promises_hold_through_a_fault(engine: str, name: str, action: Action, make_store: MakeStore) -> None:
    reached: set[str] = set()
    for seed in range(TRIES):
        points = await run_with_fault(make_store(engine), name, action, seed)
        if points.bitten:
            assert points.bitten == [(name, action)]
            return
        reached |= set(points.hits)
    pytest.fail(f"{name} was never reached in {TRIES} runs; reached were {sorted(reached)}")
