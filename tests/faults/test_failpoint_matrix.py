"""Every failpoint × every fault × every engine: the fault bites, the store heals, and every promise was kept."""

from collections.abc import Callable
from itertools import count, product
from pathlib import Path

import pytest

from pitboss.engines.protocol import FullStore
from pitboss.testing.clock import FakeClock
from pitboss.testing.failpoints import Action, Failpoints
from tests.faults import stores
from tests.faults.stores import PARTITION_POINTS, POINTS, SCARCE_POINTS, OpenWithFaults
from tests.races.keyed_workload import KeyedWorkload
from tests.races.scarce_workload import ScarceWorkload
from tests.races.workload import Workload, told
from tests.servers.schema import EmptiedSchema

ACTIONS: tuple[Action, ...] = ("kill", "lost", "delay")
CASES = [
    (engine, name, action)
    for points in (POINTS, SCARCE_POINTS, PARTITION_POINTS)
    for engine, names in points.items()
    for name, action in product(names, ACTIONS)
]
STEPS = 45
TRIES = 8
# The first seeds that reach what is seldom done; any other verb is reached by seed 0.
FIRST = {"acquire": 2, "use": 2, "release": 6}
# Longer than a session of the workload lives.
PAUSE = 12.0

MakeStore = Callable[[], OpenWithFaults]


@pytest.fixture
def make_store(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """An empty store at each call. The faults are simulated, so no store need be durable."""
    if engine == "memory":
        return stores.memory
    if engine == "sqlite":
        numbers = count()
        return lambda: stores.sqlite(tmp_path / f"{next(numbers)}.db")
    schema: EmptiedSchema = request.getfixturevalue("emptied_schema")
    return lambda: stores.postgres(schema)


async def run_with_fault(open_with: OpenWithFaults, name: str, action: Action, seed: int) -> Failpoints:
    clock = FakeClock()
    points = Failpoints(pause=clock.advance)
    points.plan(name, action, nth=1 + seed % 2, seconds=PAUSE)

    async def open_store(_: FakeClock) -> FullStore:
        return await open_with(clock, points)

    found = await _workload(name)(open_store, seed, clock=clock, heal=points.heal).run(STEPS)
    assert not found, f"{action} at {name}, {told(found, seed)}"
    return points


def _workload(name: str) -> type[Workload]:
    """The one that reaches this failpoint."""
    if name in PARTITION_POINTS["sqlite"]:
        return KeyedWorkload
    return ScarceWorkload if name in SCARCE_POINTS["sqlite"] else Workload


@pytest.mark.parametrize(("engine", "name", "action"), CASES, ids=["-".join(case) for case in CASES])
async def test_promises_hold_through_a_fault(name: str, action: Action, make_store: MakeStore) -> None:
    reached: set[str] = set()
    first = FIRST.get(name.partition(".")[0], 0)
    for seed in range(first, first + TRIES):
        points = await run_with_fault(make_store(), name, action, seed)
        if points.bitten:
            assert points.bitten == [(name, action)]
            return
        reached |= set(points.hits)
    pytest.fail(f"{name} was never reached in {TRIES} runs; reached were {sorted(reached)}")
