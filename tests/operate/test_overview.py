"""How workers and tasks did, also before a restart."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.figures import MINUTE, Sample, WorkerSample, bucket
from pitboss.model.states import State
from pitboss.operate.overview import overview_document, read_overview
from tests.operate.load_world import World


async def test_tasks_workers_and_times_of_a_load() -> None:
    world = World(comes=2.0, slots=4)
    world.fails = 0.25
    await world.start()
    for _ in range(6):
        await world.run(10)
        await world.sample(crashes=1)
    found = await read_overview(world.store, world.now, 3600 * SECOND)
    queue = {one.name: one for one in await world.store.queues()}["work"]
    assert found.work.successful == queue.counts[State.COMPLETED]
    assert found.work.failed == queue.counts[State.FAILED]
    assert found.work.share == pytest.approx(0.75, abs=0.15)
    assert (len(found.present), found.crashes) == (4, 6)
    assert 0 < found.active <= 4
    document = overview_document(found)
    assert document["processed"] == document["successful"] + document["failed"]
    assert document["error_rate"] == pytest.approx(1 - document["success_rate"])
    assert document["average_processing_time"] == pytest.approx(1.0, rel=0.1)
    assert document["queues"][0]["processed"] == document["processed"]
    assert document["covered"] == pytest.approx(60 / 3600, rel=0.3)


async def test_a_worker_keeps_its_figures_when_its_manager_is_gone_and_comes_back() -> None:
    world = World()
    await world.start()
    at = bucket(world.now, 10 * SECOND)
    told = WorkerSample("box1", "default-1", "default", 10, 7, 3, 20 * SECOND, 1000, world.now)
    gone = WorkerSample("box2", "web-1", "web", 10, 1, 0, SECOND, 0, world.now)
    await world.store.add_samples([Sample(at=at, session=1, covered=10, workers=[told, gone])])
    await world.run(60)
    await world.stop()
    await world.run(20)
    await world.start()
    later = WorkerSample("box1", "default-1", "default", 10, 2, 0, SECOND, 1000, world.now)
    later_at = bucket(world.now, 10 * SECOND)
    await world.store.add_samples([Sample(at=later_at, session=2, covered=10, workers=[later])])
    await world.run(20)
    found = {one.name: one for one in (await read_overview(world.store, world.now)).workers}
    first = found["default-1"]
    assert (first.work.successful, first.work.failed, first.work.processed) == (9, 3, 12)
    assert first.mean == 21 * SECOND // 12
    assert first.alive == 20 * SECOND
    assert first.last is not None
    assert (found["web-1"].state, found["web-1"].work.successful) == ("gone", 1)
    assert found["default-2"].work.processed == 0


async def test_a_store_without_anything_has_no_rates() -> None:
    document = overview_document(await read_overview(World().store, World().now))
    assert document["success_rate"] is None
    assert document["average_uptime"] is None
    assert (document["workers"], document["queues"], document["processed"]) == ([], [], 0)


async def test_less_than_a_minute_is_refused() -> None:
    with pytest.raises(InvalidInput):
        await read_overview(World().store, World().now, MINUTE - 1)
