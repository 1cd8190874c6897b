"""Workers that do not stay alive: crash loops, code that cannot be loaded, successors that do not start."""

from pathlib import Path

from pitboss.model.duration import SECOND
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from tests.manager.cluster import Cluster, ManagerProcess, alive, pool

APP = """
import asyncio
from pitboss import App
from tests.manager.shop import trace

app = App()

@app.task
async def quick(number: int = 0) -> int:
    trace("quick")
    return number

@app.task
async def slow(seconds: float) -> None:
    await asyncio.sleep(seconds)
"""
BROKEN = "import no_such_module_here\n" + APP


def states(cluster: Cluster, name: str | None = None) -> list[WorkerState]:
    return [worker.state for worker in cluster.workers(name)]


def all_completed(cluster: Cluster, ids: list[str]) -> bool:
    return all(cluster.task(one).state is State.COMPLETED for one in ids)


def lines(manager: ManagerProcess, text: str) -> list[str]:
    return [line for line in manager.lines if text in line]


def test_a_pool_in_a_crash_loop_is_given_up_and_its_neighbour_works_on(troubled: Cluster, tmp_path: Path) -> None:
    cluster, death = troubled, tmp_path / "death"
    death.touch()
    manager = cluster.manager(
        pool(
            "loop",
            workers=1,
            queues=("loop",),
            restart_delay=SECOND // 10,
            max_restarts=3,
            env={"DIES_IF": str(death)},
        ),
        pool("steady", workers=1, queues=("default",)),
        ttl="1500ms",
    )
    waiting = cluster.put("quick", 3, queue="loop")
    ids = cluster.put("quick", 200)
    cluster.until(lambda: states(cluster, "loop") == [WorkerState.CRASHED], what="the pool is given up")
    (given_up,) = cluster.workers("loop")
    assert (given_up.crashes, given_up.pid) == (4, 0)
    assert given_up.why == f"it crashed 4 times; 3 restarts are allowed; the last time: {_last(manager)}"
    (told,) = lines(manager, "loop-1 stays down")
    assert told.endswith("Try again with: pitboss pools restart loop")
    assert [line.rpartition(" in ")[2] for line in lines(manager, "pool loop has no live worker; next in")] == [
        "100ms",
        "200ms",
        "400ms",
    ]
    assert lines(manager, "pool loop has no live worker; none will be started")
    cluster.until(lambda: all_completed(cluster, ids))
    (steady,) = cluster.workers("steady")
    assert steady.crashes == 0
    assert {cluster.task(one).state for one in waiting} == {State.PENDING}
    death.unlink()
    cluster.wish("loop", generation=1)
    cluster.until(lambda: all_completed(cluster, waiting), what="the pool lives again")
    assert {cluster.task(one).attempts for one in waiting} == {1}
    assert cluster.workers("steady")[0].pid == steady.pid
    assert manager.end() == 0


def _last(manager: ManagerProcess) -> str:
    return [line for line in manager.lines if line.startswith("worker loop-1 (pid")][-1]


def test_code_that_no_longer_loads_gives_one_message_and_no_loop(sqlite_cluster: Cluster, tmp_path: Path) -> None:
    cluster, code = sqlite_cluster, tmp_path / "app_of_today.py"
    code.write_text(APP)
    manager = cluster.manager(pool(workers=2, concurrency=2), target=str(code), ttl="1500ms")
    cluster.until(lambda: manager.said("default-1 is ready") and manager.said("default-2 is ready"))
    code.write_text(BROKEN)
    victim, survivor = manager.workers()
    victim.kill()
    cluster.until(lambda: WorkerState.CRASHED in states(cluster))
    (told,) = lines(manager, "stays down")
    assert "the app cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_here'" in told
    assert sorted(states(cluster)) == [WorkerState.CRASHED, WorkerState.IDLE]

    cluster.wish("default", generation=1)
    cluster.until(lambda: manager.said("pool default: new workers do not start, the old ones continue"))
    assert alive(survivor.pid)
    ids = cluster.put("quick", 20)
    cluster.until(lambda: all_completed(cluster, ids))
    assert {line[3] for line in cluster.traced("quick")} == {str(survivor.pid)}

    code.write_text(APP)
    cluster.wish("default", generation=2)
    renewed = (WorkerState.IDLE, 2)
    cluster.until(lambda: [(worker.state, worker.generation) for worker in cluster.workers()] == [renewed, renewed])
    assert not alive(survivor.pid)
    ids = cluster.put("quick", 20)
    cluster.until(lambda: all_completed(cluster, ids))
    assert {task.attempts for task in cluster.tasks()} == {1}
    assert manager.end() == 0


def test_a_worn_worker_whose_successor_does_not_start_works_on_without_a_loop(
    sqlite_cluster: Cluster, tmp_path: Path
) -> None:
    cluster, code = sqlite_cluster, tmp_path / "app_of_today.py"
    code.write_text(APP)
    spec = pool(workers=1, concurrency=1, max_tasks_per_worker=1, restart_delay=SECOND)
    manager = cluster.manager(spec, target=str(code))
    cluster.until(lambda: manager.said("default-1 is ready"))
    (worker,) = manager.workers()
    code.write_text(BROKEN)
    ids = cluster.put("slow", 20, seconds=0.25)
    cluster.until(lambda: all_completed(cluster, ids))
    # In these five seconds twenty health checks found that the worker must be replaced.
    assert 1 <= len(lines(manager, "did not start")) <= 3
    assert alive(worker.pid)
    code.write_text(APP)
    cluster.until(lambda: not alive(worker.pid), within=20, what="a later successor starts")
    assert {task.attempts for task in cluster.tasks()} == {1}
    assert manager.end() == 0
