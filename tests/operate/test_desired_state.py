"""Changes to the desired state, and waiting for managers to follow."""

from typing import Any

import msgspec
import pytest

from pitboss.model.desired_state import DesiredPool
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotDone, NotFound, Refused, TimedOutWaiting
from pitboss.model.rollout_progress import RolloutProgress
from pitboss.model.snapshot import PoolFigures, Snapshot
from pitboss.operate.desired_state import (
    delay_pool,
    drain_managers,
    pause_pool,
    read_desired_state,
    restart_pool,
    scale_pool,
    stop_managers,
    wait_for_rollout,
)
from pitboss.operate.workers import find_managers
from tests.operate.bench import Bench

POOL = Snapshot(pools=(PoolFigures(name="mail", wanted=1, least=1, most=3, generation=6),))


async def values(store: Bench) -> dict[str, Any]:
    return (await read_desired_state(store)).values


async def test_a_change_says_what_was_wanted_before(store: Bench) -> None:
    await store.manager(POOL)
    change = await scale_pool(store, store.now, "mail", 4, by="ann")
    assert change.pools[0].before == DesiredPool(size=1, generation=6, paused=False, delay=(0, 0))
    again = await scale_pool(store, store.now, "mail", None, by="ann")
    assert again.pools[0].before.size == 4
    assert await values(store) == {}
    assert [wish.by for wish in await store.wishes()] == ["ann"]


async def test_a_pool_of_a_manager_that_was_started_for_certain_workers_is_not_scaled(store: Bench) -> None:
    """`pools scale web 1` ended the only worker, number 3: the number chose the first workers of the pool."""
    await store.manager(Snapshot(pools=(PoolFigures(name="web", wanted=1, least=1, most=1, only=(3,)),)))
    with pytest.raises(Refused, match="was started with --only 3") as raised:
        await scale_pool(store, store.now, "web", 1, by="ann")
    assert "pitboss up --only N, or one without --only" in raised.value.fix
    assert await values(store) == {}
    await scale_pool(store, store.now, "web", 0, by="ann")
    await scale_pool(store, store.now, "web", None, by="ann")
    assert await values(store) == {}


async def test_a_change_keeps_the_other_fields_even_unknown_ones(store: Bench) -> None:
    await store.manager(POOL)
    await store.wish("pool/mail", '{"colour":"blue","generation":9}')
    await pause_pool(store, store.now, "mail", paused=True, by="ann")
    restarted = await restart_pool(store, store.now, "mail", by="ann")
    assert restarted.generation == 10
    paused = {"paused": True, "paused_by": "ann", "paused_at": store.now}
    assert await values(store) == {"pool/mail": {"colour": "blue", "generation": 10} | paused}


async def test_a_change_for_all_hosts_replaces_those_of_single_ones(store: Bench) -> None:
    await store.manager(POOL)
    await store.manager(POOL, host="box2", pid=2)
    await scale_pool(store, store.now, "mail", 2, host="box2", by="ann")
    change = await scale_pool(store, store.now, "mail", 5, by="ann")
    assert (change.overruled, await values(store)) == (("box2",), {"pool/mail": {"size": 5}})
    back = await scale_pool(store, store.now, "mail", None, host="box2", by="ann")
    assert back.everywhere == 5


async def test_one_host_can_run_while_the_others_are_paused(store: Bench) -> None:
    await store.manager(POOL)
    await pause_pool(store, store.now, "mail", paused=True, by="ann", reason="down")
    await pause_pool(store, store.now, "mail", paused=False, host="box1", by="ann")
    paused = {"paused": True, "paused_by": "ann", "paused_at": store.now, "paused_reason": "down"}
    assert await values(store) == {"pool/mail": paused, "pool/mail@box1": {"paused": False}}
    await pause_pool(store, store.now, "mail", paused=False, by="ann")
    assert await values(store) == {}


async def test_an_unknown_pool_is_refused_but_an_earlier_change_can_be_undone(store: Bench) -> None:
    with pytest.raises(NotFound, match="no manager is running on this store"):
        await scale_pool(store, store.now, "mail", 1, by="ann")
    await store.manager(POOL)
    with pytest.raises(NotFound, match="did you mean mail"):
        await scale_pool(store, store.now, "mial", 1, by="ann")
    with pytest.raises(NotFound, match="did you mean --host box1"):
        await scale_pool(store, store.now, "mail", 1, host="box11", by="ann")
    await store.wish("pool/gone", '{"size":1}')
    assert (await scale_pool(store, store.now, "gone", None, by="ann")).pools == ()
    assert await values(store) == {}


async def test_managers_are_stopped_and_drained(store: Bench) -> None:
    number = await store.manager(POOL)
    managers = await find_managers(store, store.now)
    await drain_managers(store, managers, by="ann")
    assert await values(store) == {f"manager/{number}": {"drain": True}}
    await drain_managers(store, managers, undo=True, by="ann")
    assert await values(store) == {}
    await stop_managers(store, managers, at_once=True, by="ann")
    assert await values(store) == {f"manager/{number}": {"stop": True, "now": True}}
    for undo in (True, False):
        with pytest.raises(Refused, match="asked to stop already"):
            await drain_managers(store, managers, undo=undo, by="ann")


async def test_an_undone_drain_also_holds_for_earlier_sessions_of_the_process(store: Bench) -> None:
    first = await store.manager(POOL)
    await drain_managers(store, await find_managers(store, store.now), by="ann")
    await store.end_session(first)
    await store.manager(POOL)
    await drain_managers(store, await find_managers(store, store.now), undo=True, by="ann")
    assert await values(store) == {}


async def test_waiting_ends_when_it_is_done_or_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pitboss.operate.desired_state._LOOK_SECONDS", 0)
    steps = [RolloutProgress(0, 2, "box1"), RolloutProgress(1, 2, "box2"), RolloutProgress(2, 2)]
    shown: list[RolloutProgress] = []
    left = iter(steps)

    async def look() -> RolloutProgress:
        return next(left)

    await wait_for_rollout("scaling", look, SECOND, shown.append)
    assert shown == steps[:2]
    left = iter([msgspec.structs.replace(steps[0], trouble="worker mail-1 was given up")])
    with pytest.raises(NotDone, match="worker mail-1 was given up"):
        await wait_for_rollout("scaling", look, SECOND)
    left = iter(steps[:1])
    with pytest.raises(TimedOutWaiting, match="still waiting for box1"):
        await wait_for_rollout("scaling", look, 0)


async def test_a_delay_is_set_for_all_hosts_or_one_and_withdrawn(store: Bench) -> None:
    await store.manager(POOL)
    change = await delay_pool(store, store.now, "mail", (12 * SECOND, 25 * SECOND), by="ann")
    assert change.pools[0].before.delay == (0, 0)
    await delay_pool(store, store.now, "mail", (SECOND, SECOND), host="box1", by="ann")
    stored = await read_desired_state(store)
    assert stored.state.pool("mail", "box1").delay == (SECOND, SECOND)
    assert stored.state.pool("mail", "elsewhere").delay == (12 * SECOND, 25 * SECOND)
    assert (await delay_pool(store, store.now, "mail", None, by="ann")).overruled == ("box1",)
    assert await values(store) == {}
