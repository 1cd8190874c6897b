"""kill -9 at the steps of declaring, publishing, firing and failing, also between the statements of one act.

Whenever it happens: a fallback and a dead letter exist once if the task has failed, and not otherwise; an event has its
tasks; a schedule has advanced with its task; declarations are whole. Another process then does the rest.
"""

import asyncio

import msgspec
import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.model.states import State
from pitboss.testing.clock import FakeClock
from tests.faults import failure_load
from tests.faults.failure_kills import killed_at_steps
from tests.faults.stores import MakeUrl

# Every 41st step is tried here, and every step in `make soak ARGS=failure-kills`.
STRIDE = 41
# The work takes more steps than this, or it did not do what it should.
FEWEST = 250


@pytest.mark.fresh_loop(limit=100)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_kill_at_any_step_leaves_all_of_an_act_or_nothing(engine: str, make_url: MakeUrl) -> None:
    killed = await killed_at_steps(make_url(engine), STRIDE, first=7)
    assert killed.faults == []
    assert len(killed.places) * STRIDE > FEWEST


@pytest.mark.parametrize("wrong", ["follower", "event", "task", "tick", "line", "declared"])
async def test_what_is_wrong_is_seen(wrong: str) -> None:
    clock = FakeClock()
    store = MemoryEngine(clock=clock)
    await failure_load.prepare(store)

    async def pause(seconds: float) -> None:
        await asyncio.sleep(0)
        clock.advance(seconds)

    await failure_load.work(store, 1, pause=pause)
    assert await failure_load.complaints(store) == []
    tasks = {task.handler: task for task in store.tables.tasks.values()}
    events, schedules = await store.events(), await store.schedules()
    if wrong == "event":
        await store.prune_events(clock.now() + 1)
        assert events
    elif wrong == "declared":
        store.tables.schedules["once-2"] = msgspec.structs.replace(
            schedules[0], declared=msgspec.structs.replace(schedules[0].declared, name="once-2")
        )
    elif wrong == "line":
        held = next(task for task in store.tables.tasks.values() if task.reason == "order")
        store.tables.write(msgspec.structs.replace(held, state=State.PENDING, reason=None))
    else:
        handler = {"follower": failure_load.BURY, "task": failure_load.TIDY, "tick": failure_load.TICK}[wrong]
        del store.tables.tasks[tasks[handler].id]
    assert await failure_load.complaints(store)
