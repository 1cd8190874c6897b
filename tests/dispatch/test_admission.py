"""What may start: memory of the host, paused pools, pauses after tasks; in virtual time."""

import asyncio
from itertools import pairwise

from pitboss.model.duration import SECOND
from pitboss.model.placement import MemoryBudget
from pitboss.model.states import State
from pitboss.model.task import Claim
from pitboss.testing.virtual import run_virtual
from tests.dispatch.stage import CoroutineWorker, Stage, taking

GIGABYTE = 2**30


def test_two_heavy_tasks_do_not_run_on_a_host_that_has_room_for_one() -> None:
    stage, room = Stage(), MemoryBudget(10 * GIGABYTE)
    room.learn("work", 6 * GIGABYTE)

    async def main() -> int:
        dispatcher = stage.dispatcher()
        worker = stage.worker(dispatcher, taking(3), capacity=4)

        def admits(claim: Claim) -> bool:
            return room.admits(claim.handler, [one.handler for one in dispatcher.started() if one.id != claim.id])

        dispatcher.set_admission(admits)
        await stage.put(4)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        return worker.most

    assert run_virtual(main(), clock=stage.clock) == 1
    tasks = [claim.id for _, _, claim in stage.started]
    assert len(tasks) == len(set(tasks)) == 4


def test_a_task_that_finds_no_room_is_free_for_other_hosts_and_costs_it_nothing() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(1))
        dispatcher.set_admission(lambda _claim: False)
        (task,) = await stage.put()
        await dispatcher.start()
        await asyncio.sleep(1.8)
        found = await stage.one(task)
        assert (found.state, found.attempts, found.losses) == (State.SCHEDULED, 0, 0)
        assert found.reason == "waiting for memory on a host"
        dispatcher.set_admission(None)
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    assert len(stage.started) == 1


def test_a_paused_pool_takes_nothing_and_gives_back_what_has_not_started() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        stage.worker(dispatcher, taking(1), capacity=1)
        await stage.put(5)
        await dispatcher.start()
        await asyncio.sleep(0.5)
        dispatcher.set_paused("default", True)
        await asyncio.sleep(5)
        assert await stage.states() == {State.COMPLETED: 1, State.PENDING: 4}
        dispatcher.set_paused("default", False)
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    assert len(stage.started) == 5


def test_a_worker_rests_between_its_tasks() -> None:
    stage = Stage()

    async def main() -> None:
        dispatcher = stage.dispatcher()
        worker = CoroutineWorker(stage, dispatcher, "w1", 1, taking(0.5))
        dispatcher.add_worker(worker, rest=lambda: 2.0)
        await stage.put(4)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    starts = [at for at, _, _ in stage.started]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert min(gaps) >= 2.5 * SECOND
    assert max(gaps) < 2.6 * SECOND


def test_the_rest_changes_while_the_worker_runs_and_a_longer_one_that_has_begun_is_shortened() -> None:
    stage = Stage()

    async def main() -> list[float]:
        dispatcher = stage.dispatcher()
        worker = CoroutineWorker(stage, dispatcher, "w1", 1, taking(0))
        dispatcher.add_worker(worker, rest=lambda: 600.0)
        await stage.put(8)
        await dispatcher.start()
        await asyncio.sleep(100)
        dispatcher.set_rest("default", lambda: 10.0)
        await asyncio.sleep(15)
        dispatcher.set_rest("default", lambda: 600.0)
        await asyncio.sleep(10)
        dispatcher.set_rest("default", None)
        await stage.until_finished()
        await dispatcher.stop()
        return [round(at / SECOND - stage.started[0][0] / SECOND, 1) for at, _, _ in stage.started]

    assert run_virtual(main(), clock=stage.clock) == [0, 110, 120, 125, 125, 125, 125, 125]


def test_a_fast_pool_that_begins_to_rest_claims_nothing_ahead() -> None:
    stage = Stage()

    async def main() -> float:
        dispatcher = stage.dispatcher()
        worker = CoroutineWorker(stage, dispatcher, "w1", 1, taking(0.001))
        dispatcher.add_worker(worker)
        await stage.put(300)
        await dispatcher.start()
        await asyncio.sleep(0.1)
        dispatcher.set_rest("default", lambda: 1.0)
        await asyncio.sleep(5)
        before = len(stage.started)
        await asyncio.sleep(10)
        assert len(dispatcher.running()) <= 1
        await dispatcher.stop()
        return len(stage.started) - before

    assert run_virtual(main(), clock=stage.clock) == 10
