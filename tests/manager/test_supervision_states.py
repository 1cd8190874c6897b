"""The states and figures of a worker, as they are in the store."""

from collections.abc import Callable
from pathlib import Path

from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.snapshot import PoolFigures, WorkerFigures, WorkerState
from pitboss.model.states import State
from tests.manager.cluster import Cluster, pool

MB = 1024 * 1024


def seen(cluster: Cluster, state: WorkerState, also: Callable[[WorkerFigures], bool] = lambda _: True) -> WorkerFigures:
    """The only worker, once it looks like this."""
    found: list[WorkerFigures] = []

    def look() -> bool:
        found[:] = [one for one in cluster.workers() if one.state is state and also(one)]
        return bool(found)

    cluster.until(look, within=20, what=f"a worker is {state}; there are {cluster.workers()}")
    return found[0]


def test_a_worker_is_seen_from_its_start_to_its_end_with_its_figures(troubled: Cluster, tmp_path: Path) -> None:
    cluster, gate = troubled, tmp_path / "gate"
    death = tmp_path / "death"
    env = {"GATE": str(gate), "DIES_IF": str(death)}
    spec = pool(workers=1, concurrency=4, restart_delay=2 * SECOND, max_restarts=1, env=env)
    manager = cluster.manager(spec, ttl="1500ms")
    _is_seen_at_work(cluster, gate)
    _is_seen_crashing(cluster, death)
    _is_seen_leaving(cluster)
    assert manager.end() == 0


def _is_seen_at_work(cluster: Cluster, gate: Path) -> None:
    starting = seen(cluster, WorkerState.STARTING, lambda one: one.pid > 0)
    assert (starting.name, starting.pool, starting.running) == ("default-1", "default", 0)
    gate.touch()
    idle = seen(cluster, WorkerState.IDLE)
    assert (idle.pid, idle.crashes, idle.processed, idle.mean) == (starting.pid, 0, 0, 0)
    (task,) = cluster.put("burns", seconds=6)
    busy = seen(cluster, WorkerState.PROCESSING, lambda one: one.cpu > 0.1)
    assert [(one.id, one.handler) for one in busy.tasks] == [(task, "burns")]
    assert busy.running == 1
    assert busy.cpu < 2
    begun = cluster.task(task).started_at
    assert begun is not None
    assert abs(busy.tasks[0].since - begun) < SECOND
    assert idle.started_at <= busy.tasks[0].since <= busy.active_at + SECOND
    cluster.put("fails")
    worked = seen(cluster, WorkerState.IDLE, lambda one: one.processed == 2)
    assert (worked.succeeded, worked.failed, worked.running, worked.tasks) == (1, 1, 0, ())
    assert 3 * SECOND <= worked.mean <= 4 * SECOND
    assert worked.rss > 10 * MB
    assert worked.started_at == idle.started_at or abs(worked.started_at - idle.started_at) < SECOND // 10
    assert worked.active_at > busy.active_at


def _is_seen_crashing(cluster: Cluster, death: Path) -> None:
    # The first crash is replaced at once, because no worker is alive; but then none becomes ready.
    death.touch()
    (bomb,) = cluster.put("bomb")
    waiting = seen(cluster, WorkerState.RESTARTING)
    assert (waiting.pid, waiting.crashes) == (0, 2)
    assert "exit code 7" in waiting.why
    # Another one dies before it is ready, once more than allowed.
    given_up = seen(cluster, WorkerState.CRASHED)
    assert (given_up.pid, given_up.crashes) == (0, 3)
    assert "1 restarts are allowed" in given_up.why
    assert cluster.task(bomb).state is State.PENDING
    cluster.do(cluster.engine.cancel(by(id=bomb), reason="enough"))
    death.unlink()
    cluster.wish("default", generation=1)
    revived = seen(cluster, WorkerState.IDLE)
    assert (revived.generation, revived.crashes, revived.processed) == (1, 3, 0)
    assert _pool(cluster).generation == 1


def _is_seen_leaving(cluster: Cluster) -> None:
    cluster.put("slow", seconds=4)
    cluster.until(lambda: cluster.traced("began"))
    cluster.wish("default", generation=1, size=0)
    assert seen(cluster, WorkerState.DRAINING).running == 1
    cluster.until(lambda: not cluster.workers(), what="a worker that is not wanted is gone")
    pool = _pool(cluster)
    assert (pool.wanted, pool.why) == (0, "set by an operator")
    assert cluster.counts()[State.COMPLETED] == 2


def _pool(cluster: Cluster) -> PoolFigures:
    ((figures,),) = (told.pools for told in cluster.snapshots())
    return figures
