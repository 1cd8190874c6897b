"""The numbers at the head of the overview."""

import pytest

from pitboss.model.fleet import live_managers
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.operate.key_numbers import Evidence, KeyNumbers, evidence, key_numbers
from pitboss.operate.pulse import read_pulse
from pitboss.operate.queue_flows import queue_flows
from pitboss.operate.status import read_status
from tests.operate.bench import Bench
from tests.operate.load_world import World


async def read(world: World) -> tuple[KeyNumbers, Evidence]:
    status, pulse = await read_status(world.store, world.now), await read_pulse(world.store, world.now)
    flows, managers = queue_flows(status, pulse.runs), live_managers(status.sessions, status.now)
    return key_numbers(status, flows, pulse, managers), evidence(status, flows, pulse)


async def test_a_load_that_its_workers_do() -> None:
    world = World(comes=2.0, slots=4)
    await world.start()
    for _ in range(36):
        await world.run(10)
        await world.sample()
    found, shown = await read(world)
    assert (found.slots, found.workers, found.ready, found.crashed, found.restarting) == (4, 4, 4, 0, 0)
    assert (found.growth, found.grows_since, found.short_of, found.failed) == (0, None, "", 0)
    assert found.ending == pytest.approx(2.0, rel=0.2)
    assert 0 < found.usually_ending < found.ending, "most of the hour had no load"
    assert (shown.queue, shown.grows) == ("", False)


async def test_a_load_that_grows_is_told_of_its_queue() -> None:
    world = World(comes=6.0, slots=2)
    await world.start()
    for _ in range(60):
        await world.run(10)
        await world.sample()
    found, shown = await read(world)
    assert found.waiting > 1000
    assert found.due
    assert found.growth == pytest.approx(4.0, rel=0.2)
    assert found.oldest is not None
    assert found.oldest[1] == "work"
    assert (shown.queue, shown.grows) == ("work", True)
    assert shown.inflow > shown.outflow


async def test_workers_that_are_not_wanted_any_more_do_not_count() -> None:
    """Regression: "2 of 3 ready" and the seats of three, for as long as one that was removed drained, and after it."""
    store = Bench()
    states = (WorkerState.IDLE, WorkerState.PROCESSING, WorkerState.DRAINING, WorkerState.STOPPED)
    workers = tuple(WorkerFigures(name=f"mail-{n}", pool="mail", state=one) for n, one in enumerate(states))
    pools = (PoolFigures(name="mail", concurrency=16, wanted=2),)
    await store.manager(Snapshot(pools=pools, workers=workers))
    status, pulse = await read_status(store, store.now), await read_pulse(store, store.now)
    managers = live_managers(status.sessions, status.now)
    found = key_numbers(status, queue_flows(status, pulse.runs), pulse, managers)
    assert (found.ready, found.workers, found.slots, found.draining) == (2, 2, 32, 1)
