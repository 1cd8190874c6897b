"""The states of a worker, and its figures, as anybody can read them in the store."""

from collections.abc import Callable
from pathlib import Path

from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.snapshot import PoolFigures, WorkerFigures, WorkerState
from pitboss.model.states import State
from tests.manager.house import House, pool

MB = 1024 * 1024


def seen(house: House, state: WorkerState, also: Callable[[WorkerFigures], bool] = lambda _: True) -> WorkerFigures:
    """The one worker, once it is seen so."""
    found: list[WorkerFigures] = []

    def look() -> bool:
        found[:] = [one for one in house.workers() if one.state is state and also(one)]
        return bool(found)

    house.until(look, within=20, what=f"a worker is {state}; there are {house.workers()}")
    return found[0]


def test_a_worker_is_seen_from_its_start_to_its_end_with_its_figures(troubled: House, tmp_path: Path) -> None:
    house, gate = troubled, tmp_path / "gate"
    spec = pool(workers=1, concurrency=4, restart_delay=2 * SECOND, max_restarts=1, env={"GATE": str(gate)})
    manager = house.manager(spec, ttl="1500ms")
    _is_seen_at_work(house, gate)
    _is_seen_crashing(house)
    _is_seen_leaving(house)
    assert manager.end() == 0


def _is_seen_at_work(house: House, gate: Path) -> None:
    starting = seen(house, WorkerState.STARTING, lambda one: one.pid > 0)
    assert (starting.name, starting.pool, starting.running) == ("default-1", "default", 0)
    gate.touch()
    idle = seen(house, WorkerState.IDLE)
    assert (idle.pid, idle.crashes, idle.processed, idle.mean) == (starting.pid, 0, 0, 0)
    (task,) = house.put("burns", seconds=6)
    busy = seen(house, WorkerState.PROCESSING, lambda one: one.cpu > 0.1)
    assert [(one.id, one.handler) for one in busy.tasks] == [(task, "burns")]
    assert busy.running == 1
    assert busy.cpu < 2
    begun = house.task(task).started_at
    assert begun is not None
    assert abs(busy.tasks[0].since - begun) < SECOND
    assert idle.started_at <= busy.tasks[0].since <= busy.active_at + SECOND
    house.put("fails")
    worked = seen(house, WorkerState.IDLE, lambda one: one.processed == 2)
    assert (worked.succeeded, worked.failed, worked.running, worked.tasks) == (1, 1, 0, ())
    assert 3 * SECOND <= worked.mean <= 4 * SECOND
    assert worked.rss > 10 * MB
    assert worked.started_at == idle.started_at or abs(worked.started_at - idle.started_at) < SECOND // 10
    assert worked.active_at > busy.active_at


def _is_seen_crashing(house: House) -> None:
    (bomb,) = house.put("bomb")
    waiting = seen(house, WorkerState.RESTARTING)
    assert (waiting.pid, waiting.crashes) == (0, 1)
    assert "exit code 3" in waiting.why
    # The second crash, when the task was given to it again, is one more than is allowed.
    given_up = seen(house, WorkerState.CRASHED)
    assert (given_up.pid, given_up.crashes) == (0, 2)
    assert "1 restarts are allowed" in given_up.why
    assert house.task(bomb).state is State.PENDING
    house.do(house.engine.cancel(by(id=bomb), reason="enough"))
    house.wish("default", generation=1)
    revived = seen(house, WorkerState.IDLE)
    assert (revived.generation, revived.crashes, revived.processed) == (1, 2, 0)
    assert _pool(house).generation == 1


def _is_seen_leaving(house: House) -> None:
    house.put("slow", seconds=4)
    house.until(lambda: house.traced("began"))
    house.wish("default", generation=1, size=0)
    assert seen(house, WorkerState.DRAINING).running == 1
    assert seen(house, WorkerState.STOPPED).pid == 0
    pool = _pool(house)
    assert (pool.wanted, pool.why) == (0, "set by an operator")
    assert house.counts()[State.COMPLETED] == 2


def _pool(house: House) -> PoolFigures:
    ((figures,),) = (told.pools for told in house.snapshots())
    return figures
