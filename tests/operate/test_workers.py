"""Managers and worker pools on all hosts."""

import pytest

from pitboss.model.errors import NotFound
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.operate.documents import managers_document
from pitboss.operate.workers import (
    find_managers,
    list_worker_pools,
    log_folders,
    read_managers,
    read_worker,
    read_worker_pools,
)
from tests.operate.bench import Bench


def snapshot(pool: str, *states: WorkerState, **changes: object) -> Snapshot:
    workers = [WorkerFigures(name=f"{pool}-{n}", pool=pool, state=state, pid=n) for n, state in enumerate(states, 1)]
    figures = PoolFigures(name=pool, wanted=len(workers), least=0, most=9)
    return Snapshot(pools=(figures,), workers=tuple(workers), **changes)  # type: ignore[arg-type]


async def fill(store: Bench) -> None:
    await store.manager(snapshot("mail", WorkerState.IDLE, logs="/srv/logs"), host="box1", pid=1)
    await store.manager(snapshot("download", WorkerState.CRASHED), host="box2", pid=2)
    gone = await store.manager(snapshot("old"), host="box3", pid=3)
    await store.end_session(gone)


async def test_managers_can_be_narrowed_and_gone_ones_added(store: Bench) -> None:
    await fill(store)
    found = await read_managers(store, store.now)
    assert ([one.host for one in found.living], found.gone) == (["box1", "box2"], ())
    assert [one.host for one in (await read_managers(store, store.now, with_gone=True)).gone] == ["box3"]
    narrowed = managers_document(await read_managers(store, store.now, pool="mail"))["managers"]
    assert [[worker["name"] for worker in one["workers"]] for one in narrowed] == [["mail-1"], []]


async def test_a_host_a_pool_or_a_number_that_is_not_there(store: Bench) -> None:
    with pytest.raises(NotFound, match="no manager is running on this store"):
        await find_managers(store, store.now)
    await fill(store)
    with pytest.raises(NotFound, match="did you mean box2"):
        await read_managers(store, store.now, host="box")
    with pytest.raises(NotFound, match="did you mean mail"):
        await read_managers(store, store.now, pool="mial")
    with pytest.raises(NotFound, match=r"running are 1 \(box1\), 2 \(box2\)"):
        await find_managers(store, store.now, number=3)
    with pytest.raises(NotFound, match="did you mean box2"):
        await find_managers(store, store.now, host="box22")
    with pytest.raises(NotFound):
        await list_worker_pools(store, store.now, "box3")
    assert [one.host for one in await find_managers(store, store.now, host="box2")] == ["box2"]


async def test_worker_pools_with_the_worst_of_their_states(store: Bench) -> None:
    await fill(store)
    pools = await list_worker_pools(store, store.now)
    assert [(view.pool.name, view.state) for view in pools] == [("download", "dead"), ("mail", "running")]
    assert await read_worker_pools(store, store.now, "mail", "box2") == []


async def test_where_logs_are(store: Bench) -> None:
    await fill(store)
    assert await log_folders(store, store.now) == ["box1 (in /srv/logs)", "box2"]


async def test_of_two_workers_of_one_name_the_one_that_stays_is_meant(store: Bench) -> None:
    """Regression: in a rolling restart the page of the worker was that of the one that drains."""
    two = [WorkerFigures(name="mail-1", pool="mail", state=WorkerState.DRAINING, pid=1)]
    two.append(WorkerFigures(name="mail-1", pool="mail", state=WorkerState.IDLE, pid=2))
    number = await store.manager(
        Snapshot(pools=(PoolFigures(name="mail", concurrency=4, wanted=1),), workers=tuple(two))
    )
    found = await read_worker(store, store.now, number, "mail-1")
    assert (found.worker.pid, found.pool.slots) == (2, 4)
    assert (await read_worker(store, store.now, number, "mail-1", pid=1)).worker.pid == 1
