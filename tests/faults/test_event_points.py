"""Every failpoint of declaring, publishing and firing × every fault × every engine: all of an act, or nothing of it.

Never an event without its tasks, nor tasks without their event; never a schedule that advanced without its task, nor
the other way round; never half of what an app declares.
"""

from itertools import product

import pytest

from pitboss.engines.protocol import FullStore
from pitboss.model.errors import NotLeader, StoreUnavailable
from pitboss.testing.clock import FakeClock
from pitboss.testing.failpoints import DECLARED_VERBS, Action, Failpoints, Killed, names
from tests.faults import failure_load
from tests.faults.test_failpoint_matrix import ACTIONS, PAUSE, MakeStore
from tests.faults.test_failpoint_matrix import make_store as make_store  # noqa: PLC0414

WAYS = ("last attempt",)
CASES = [
    (engine, name, action)
    for engine in ("memory", "sqlite", "postgres")
    for name, action in product(names(sql=engine != "memory", verbs=DECLARED_VERBS), ACTIONS)
]


@pytest.mark.parametrize(("engine", "name", "action"), CASES, ids=["-".join(case) for case in CASES])
async def test_all_of_it_or_nothing(name: str, action: Action, make_store: MakeStore) -> None:
    clock = FakeClock()
    points = Failpoints(pause=clock.advance)
    points.plan(name, action, seconds=PAUSE)
    open_with, opened = make_store(), list[FullStore]()

    async def pause(seconds: float) -> None:
        clock.advance(seconds)

    try:
        opened.append(await open_with(clock, points))
        await failure_load.prepare(opened[0])
        try:
            await failure_load.work(opened[0], 1, "one", WAYS, pause)
        except (Killed, StoreUnavailable, NotLeader):
            opened.append(await open_with(clock, points))
        assert points.bitten == [(name, action)]
        store = opened[-1]
        faults = await failure_load.complaints(store)
        faults += await failure_load.go_on(store, 1, WAYS, pause, repeat=True)
        assert faults == []
    finally:
        for store in opened:
            await store.close()
