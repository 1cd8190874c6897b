"""kill -9 of managers and workers in the middle of batches, at the steps that an engine names.

Whenever it happens: a batch counts what its items are, a lane neither stalls nor runs two, and a member is in use
exactly as often as a live claim holds it.
"""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import pytest

from pitboss import wiring
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import FullStore
from pitboss.model.batch import OVER, BatchStatus, NewBatch
from pitboss.model.ids import IdMaker
from pitboss.model.resource import Limits, NewResource, PoolRules
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock
from tests.faults import batch_load
from tests.faults.batch_kills import killed_at_steps
from tests.faults.stores import MakeUrl
from tests.manager.cluster import Cluster

ENGINES = ("sqlite", "postgres")
# Every fifth step is tried here, and every step in `make soak`.
STRIDE = 5
# The work takes more steps than this, or it did not do what it should.
FEWEST = 60
SHOP = str(Path(__file__).with_name("batch_shop.py"))
EACH = 100
PROXIES = 6


@pytest.fixture
def house(request: pytest.FixtureRequest, make_url: MakeUrl, tmp_path: Path) -> Iterator[Cluster]:
    house = Cluster(make_url(request.param), tmp_path, SHOP)
    try:
        yield house
    finally:
        house.close()


@pytest.mark.fresh_loop(limit=100)
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_kill_at_any_step_of_batches_leaves_them_sound(engine: str, make_url: MakeUrl) -> None:
    killed = await killed_at_steps(make_url(engine), STRIDE)
    assert killed.faults == []
    assert len(killed.places) * STRIDE > FEWEST
    verbs = {place.partition(".")[0] for place in killed.places}
    assert {"claim", "settle", "reclaim"} <= verbs


@pytest.mark.parametrize("wrong", ["in_use", "status", "count"])
async def test_what_is_wrong_with_a_batch_is_seen(wrong: str) -> None:
    store = MemoryEngine(clock=FakeClock())
    await batch_load.prepare(store)
    for number in (1, 2):
        await store.create_batch(*batch_load.made(number))
    await store.claim(batch_load.request(await batch_load.open_session(store, "one")))
    assert await batch_load.complaints(store) == []
    second = store.tables.batches[batch_load.ids([2])[0]]
    if wrong == "in_use":
        members = store.tables.pools[batch_load.POOL]
        members.write(msgspec.structs.replace(members.all["m2"], in_use=1))
    elif wrong == "status":
        store.tables.write_batch(msgspec.structs.replace(second, status=BatchStatus.RUNNING))
    else:
        store.tables.items[second.id][batch_load.POOL][State.HELD] -= 1
    assert await batch_load.complaints(store)


@pytest.mark.parametrize("house", ENGINES, indirect=True)
def test_managers_and_workers_killed_in_the_middle_of_three_batches(house: Cluster) -> None:
    batches = three_batches(house)
    first = house.manager(workers=2, concurrency=4, ttl="2s", elsewhere="host-1")
    second = house.manager(workers=2, concurrency=4, ttl="2s", elsewhere="host-2")
    for share in (0.1, 0.3, 0.5):
        house.until(partial(reached, house, share), within=60)
        for victim in second.workers()[:1]:
            victim.send_signal(signal.SIGKILL)
    first.signal(signal.SIGKILL)
    first.process.wait()
    third = house.manager(workers=2, concurrency=4, ttl="2s", elsewhere="host-3")
    house.until(lambda: all_over(house, batches), within=90, what="all three batches are over")
    house.until(lambda: house.finished() == 3 * EACH + 3, what="their last tasks have run")
    tasks = house.tasks()
    assert sum(task.batch is not None for task in tasks) == 3 * EACH
    assert sorted(task.value() for task in tasks if task.batch is None) == [
        f"{batch} done" for batch in sorted(batches)
    ]
    assert {(task.state, task.attempts) for task in tasks} == {(State.COMPLETED, 1)}
    assert house.do(batch_load.complaints(store_of(house), idle=True)) == []
    ends = [batch.finished_at for batch in house.do(store_of(house).batches(batches))]
    assert len(ends) == len(set(ends)) == 3
    assert (second.end(), third.end()) == (0, 0)


def three_batches(house: Cluster) -> list[str]:
    """In one lane, so that each has to wait for the one before it; for members with a gap between two uses."""
    rules = PoolRules(limits=Limits(min_delay=20_000, concurrency=1))
    house.do(store_of(house).declare_pool(batch_load.POOL, rules))
    members = [NewResource(name=f"m{number}") for number in range(PROXIES)]
    house.do(store_of(house).add_resources(batch_load.POOL, members))
    found, new_id = list[str](), IdMaker(wiring.SystemClock().now, wiring.randbits())
    for number in range(3):
        items = [
            NewTask(id=new_id(), handler=batch_load.ITEM, queue=batch_load.POOL, params=f'{{"number":{place}}}')
            for place in range(EACH)
        ]
        end = NewTask(id=new_id(), handler=batch_load.CLOSED)
        batch = NewBatch(id=new_id(), name=f"batch {number}", lane=batch_load.LANE, on_complete=end)
        found.append(house.do(store_of(house).create_batch(batch, items)).id)
    return found


def store_of(house: Cluster) -> FullStore:
    return cast("FullStore", house.engine)


def reached(house: Cluster, share: float) -> bool:
    return house.finished() >= 3 * EACH * share


def all_over(house: Cluster, batches: list[str]) -> bool:
    return all(batch.status in OVER for batch in house.do(store_of(house).batches(batches)))
