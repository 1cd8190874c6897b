"""How a manager stops: it waits for running tasks, hurries at the second stop, and leaves nothing behind."""

import signal
from pathlib import Path

import msgspec

from pitboss.model.desired_state import DesiredManager, manager_key
from pitboss.model.states import State
from tests.manager.cluster import Cluster, alive, pool
from tests.manager.drills import ready


def ask(cluster: Cluster, **wanted: bool) -> None:
    """Write what an operator wants from the only manager."""
    (session,) = (one.number for one in cluster.do(cluster.engine.sessions()) if not one.ended)
    cluster.do(
        cluster.engine.wish(manager_key(session), msgspec.json.encode(DesiredManager(**wanted)).decode(), by="test")
    )


def test_a_stop_waits_for_what_runs_and_gives_back_the_rest(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=1, concurrency=2), pool("idle", workers=1, queues=("none",)))
    running = cluster.put("slow", 2, seconds=2)
    cluster.until(lambda: len(cluster.traced("began")) == 2)
    waiting = cluster.put("quick", 10)
    pids = [worker.pid for worker in manager.workers()]
    assert manager.end() == 0
    assert manager.said("waiting up to 20 s for 2 running task(s): 2 × slow")
    assert {cluster.task(one).state for one in running} == {State.COMPLETED}
    assert {(cluster.task(one).state, cluster.task(one).attempts) for one in waiting} == {(State.PENDING, 0)}
    assert not any(alive(pid) for pid in pids)
    assert [session for session in cluster.do(cluster.engine.sessions()) if not session.ended] == []


def test_a_second_stop_ends_now_also_what_ignores_everything(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=2, concurrency=2))
    ids = cluster.put("stubborn_without_limit") + cluster.put("holds_the_interpreter")
    cluster.until(lambda: cluster.traced("stubborn") and cluster.traced("holds"))
    pids = [worker.pid for worker in manager.workers()]
    manager.signal(signal.SIGTERM)
    cluster.until(lambda: manager.said("Stop again to end now"))
    manager.signal(signal.SIGTERM)
    assert manager.process.wait(timeout=5) == 0
    assert not any(alive(pid) for pid in pids)
    for one in ids:
        task = cluster.task(one)
        assert (task.state, task.attempts, task.losses, task.crashes) == (State.PENDING, 0, 0, 0)


def test_a_stop_while_workers_start_ends_them(troubled: Cluster, tmp_path: Path) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=3, env={"GATE": str(tmp_path / "never")}))
    cluster.until(manager.workers)
    pids = [worker.pid for worker in manager.workers()]
    manager.signal(signal.SIGTERM)
    assert manager.process.wait(timeout=6) == 0
    assert not any(alive(pid) for pid in pids)


def test_an_operator_drains_a_manager_and_stops_it_from_elsewhere(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=1))
    ready(cluster, manager, 1)
    (running,) = cluster.put("slow", seconds=2)
    cluster.until(lambda: cluster.traced("began"))
    ask(cluster, drain=True)
    cluster.until(lambda: manager.said("draining: no new tasks are taken"))
    (waiting,) = cluster.put("quick")
    cluster.until(lambda: cluster.task(running).state is State.COMPLETED)
    assert cluster.task(waiting).state is State.PENDING
    ask(cluster)
    cluster.until(lambda: cluster.task(waiting).state is State.COMPLETED)
    ask(cluster, stop=True)
    assert manager.process.wait(timeout=20) == 0
    assert manager.said("an operator asked this manager to stop")
