"""One pool of workers without processes: which slot starts a worker when, and what the pool says."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory import MemoryEngine
from pitboss.manager.announcer import Announcer
from pitboss.manager.reaper import Reaper
from pitboss.manager.session_router import SessionRouter
from pitboss.manager.worker_pool import WorkerPool
from pitboss.manager.worker_process import Edition, WorkerProcess
from pitboss.manager.worker_slot import Services
from pitboss.model.duration import SECOND
from pitboss.model.outcome import Released
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import WorkerState
from pitboss.simulate.clock import FakeClock
from pitboss.worker.main import WorkerSpec


class FakeWorker(WorkerProcess):
    """A worker without a process: the test says when it is ready, and when it ends."""

    async def spawn(self) -> None:
        self.exit_code = -9
        # Set when it was ready or gone, and what follows from that was done.
        self.placed = asyncio.Event()

    def kill(self) -> None:
        self.gone.set()

    async def ended(self) -> int:
        self.placed.set()
        await self.gone.wait()
        self.code = self.exit_code
        return self.code


class Stage:
    """A pool of fake workers, and what it said."""

    def __init__(self, spec: PoolSpec) -> None:
        self.said: list[str] = []
        self.made: list[FakeWorker] = []
        clock = FakeClock()
        store = MemoryEngine(clock=clock)
        self.router = SessionRouter(store)
        self.router.present = Dispatcher(
            store, SessionInfo(host="stage"), clock=clock, luck=lambda: 0.0, policies=lambda _: Policy()
        )
        services = Services(self.router, Announcer(self.said.append, clock), Reaper(), clock)
        self.pool = WorkerPool(services, spec, self._make, lambda: 0.0)
        self.pool.resize(spec.max_workers)

    def _make(self, name: str, spec: PoolSpec, edition: Edition) -> WorkerProcess:
        told = WorkerSpec(name=name, target="", concurrency=1, manager=0, pool=spec.name)
        worker = FakeWorker(told, len(self.made), edition, {}, lambda _worker, _message: None)
        self.made.append(worker)
        return worker

    def has_made(self, count: int) -> bool:
        return len(self.made) == count

    def is_over(self, worker: FakeWorker) -> bool:
        return worker not in self.pool.workers

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.to_thread(time.sleep, 0.001)

    async def ready(self, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.ready.set()
        await self.until(lambda: all(f"worker {worker.name} is ready (pid 0)" in self.said for worker in workers))


SLOW = PoolSpec(min_workers=2, max_workers=2, restart_delay=300 * SECOND, max_restarts=5)


async def test_a_worker_beside_another_waits_for_its_delay_and_the_last_one_starts_at_once() -> None:
    stage = Stage(SLOW)
    await stage.until(partial(stage.has_made, 2))
    await stage.ready(*stage.made)
    stage.made[0].kill()
    await stage.until(lambda: "worker default-1 starts again in 5m" in stage.said)
    assert stage.pool.alive
    for turn in range(10):
        stage.made[-1].kill()
        await stage.until(partial(stage.has_made, 3 + turn))
        assert stage.made[-1].name == "default-2"
        await stage.ready(stage.made[-1])
    assert not any("no live worker" in line or "stays down" in line for line in stage.said)
    await stage.pool.end(0)


async def test_if_the_last_one_does_not_become_ready_another_is_tried_before_the_pool_is_called_dead() -> None:
    stage = Stage(SLOW)
    await stage.until(partial(stage.has_made, 2))
    await stage.ready(*stage.made)
    for worker in list(stage.made):
        worker.kill()
        await stage.until(worker.gone.is_set)
        await stage.until(partial(stage.is_over, worker))
    await stage.until(partial(stage.has_made, 3))
    stage.made[2].kill()
    await stage.until(partial(stage.has_made, 4))
    assert [worker.name for worker in stage.made] == ["default-1", "default-2", "default-2", "default-1"]
    stage.made[3].kill()
    await stage.until(lambda: "pool default has no live worker; next in 5m" in stage.said)
    assert len(stage.made) == 4
    assert [line for line in stage.said if "no live worker" in line] == ["pool default has no live worker; next in 5m"]
    await stage.pool.end(0)


async def test_a_stop_starts_no_worker_in_place_of_those_that_it_kills() -> None:
    stage = Stage(SLOW)
    await stage.until(partial(stage.has_made, 2))
    await stage.ready(*stage.made)
    stage.pool.quiet()
    for worker in stage.made:
        worker.kill_for(task_outcome=Released(started=True))
    await stage.until(lambda: not stage.pool.workers)
    await asyncio.sleep(0)
    await stage.pool.end(1)
    assert len(stage.made) == 2


async def test_a_session_that_is_lost_replaces_the_workers_that_it_kills() -> None:
    stage = Stage(SLOW)
    await stage.until(partial(stage.has_made, 2))
    await stage.ready(*stage.made)
    stage.pool.kill()
    await stage.until(partial(stage.has_made, 4))
    await stage.pool.end(0)


async def test_a_worker_that_is_told_to_leave_while_it_starts_gets_no_task() -> None:
    """It was offered to the dispatcher once it was ready, and a task that was claimed for it then had no worker."""
    stage = Stage(SLOW)
    await stage.until(partial(stage.has_made, 2))
    staying, leaving = stage.made
    await stage.ready(staying)
    slot = stage.pool.slots[2]
    stage.pool.resize(1)
    leaving.ready.set()
    await leaving.placed.wait()
    assert stage.router.room("default") == 1
    assert slot.state is WorkerState.DRAINING
    assert slot in stage.pool.shown_slots()
    assert "worker default-2 is ready (pid 0)" not in stage.said
    leaving.exit_code = 0
    leaving.gone.set()
    await stage.until(partial(stage.is_over, leaving))
    await stage.until(lambda: slot.state is WorkerState.STOPPED)
    assert slot not in stage.pool.shown_slots(), "it was listed as stopped until the next change of size"
    assert stage.router.room("default") == 1
    await stage.pool.end(0)


async def test_a_successor_whose_slot_leaves_while_it_starts_gets_no_task() -> None:
    stage = Stage(SLOW)
    await stage.until(partial(stage.has_made, 2))
    await stage.ready(*stage.made)
    slot = stage.pool.slots[2]
    succession = slot.replace()
    await stage.until(partial(stage.has_made, 3))
    successor = stage.made[2]
    stage.pool.resize(1)
    successor.ready.set()
    await succession
    assert stage.router.room("default") == 1
    assert slot.state is WorkerState.DRAINING
    for worker in stage.made[1:]:
        worker.exit_code = 0
        worker.gone.set()
    await stage.until(lambda: slot.state is WorkerState.STOPPED)
    await stage.pool.end(0)
