"""What workers leave behind: daemons, child processes, and the tasks beside one that kills its worker."""

import signal

import psutil

from pitboss.model.states import State
from tests.manager.cluster import Cluster, ManagerProcess, alive, pool
from tests.manager.drills import ready


def daemons(cluster: Cluster) -> list[int]:
    return [int(line[1]) for line in cluster.traced("daemon")]


def worker_of(manager: ManagerProcess, name: str) -> psutil.Process:
    (found,) = (one for one in manager.workers() if f'"name":"{name}"' in " ".join(one.cmdline()))
    return found


def test_no_daemon_outlives_its_worker_however_that_ends(troubled: Cluster) -> None:
    cluster = troubled
    names = ("drained", "killed", "orphan", "held")
    manager = cluster.manager(*(pool(name, workers=1, queues=(name,)) for name in names))
    (drained,) = _daemon(cluster, "drained")
    (killed,) = _daemon(cluster, "killed")
    (orphan,) = _daemon(cluster, "orphan")

    cluster.wish("drained", size=0)
    cluster.until(lambda: not alive(drained), within=10, what="the drained worker's daemon is gone")
    cluster.until(lambda: manager.said(f"worker drained-1 left process {drained} behind ("), within=5)
    worker_of(manager, "killed-1").kill()
    cluster.until(lambda: not alive(killed), within=10, what="the killed worker's daemon is gone")
    cluster.until(lambda: manager.said(f"worker killed-1 left process {killed} behind ("), within=5)
    assert alive(orphan), "only the daemons of dead workers are ended"

    # One worker cannot notice that its manager is gone: its handler holds the interpreter.
    cluster.put("holds_the_interpreter", queue="held")
    cluster.until(lambda: cluster.traced("holds"))
    family = psutil.Process(manager.process.pid).children(recursive=True)
    manager.signal(signal.SIGKILL)
    manager.process.wait()
    cluster.until(lambda: not alive(orphan), within=10, what="the daemon of a killed manager's worker is gone")
    cluster.until(lambda: not any(alive(one.pid) for one in family), within=10, what="nothing is left")


def _daemon(cluster: Cluster, queue: str) -> list[int]:
    before = daemons(cluster)
    cluster.put("leaves_a_daemon", queue=queue)
    cluster.until(lambda: len(daemons(cluster)) > len(before))
    return [one for one in daemons(cluster) if one not in before]


def test_a_worker_that_dies_is_missed_at_once_also_while_its_forks_hold_its_socket(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=1))
    ready(cluster, manager, 1)
    (task,) = cluster.put("forks_and_dies")
    cluster.until(lambda: cluster.task(task).state is State.COMPLETED, within=10)
    assert (cluster.task(task).attempts, cluster.task(task).crashes) == (1, 1)
    assert [attempt.outcome for attempt in cluster.attempts(task)] == ["crashed", "completed"]
    assert manager.said("was killed by SIGKILL")
    assert manager.end() == 0


def test_a_manager_goes_on_when_its_reaper_is_killed_and_has_another(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=1))
    cluster.until(lambda: manager.said("default-1 is ready"))
    (reaper,) = _reapers(manager)
    reaper.kill()
    (daemon,) = _daemon(cluster, "default")
    (worker,) = manager.workers()
    worker.kill()
    cluster.until(lambda: sum("default-1 is ready" in line for line in manager.lines) == 2, within=10)
    assert not alive(daemon)
    (task,) = cluster.put("quick")
    cluster.until(lambda: cluster.task(task).state is State.COMPLETED)
    (daemon,) = _daemon(cluster, "default")
    cluster.until(lambda: _reapers(manager), within=10, what="there is another reaper")
    manager.signal(signal.SIGKILL)
    manager.process.wait()
    cluster.until(lambda: not alive(daemon), within=10, what="the other reaper killed it")


def _reapers(manager: ManagerProcess) -> list[psutil.Process]:
    family = psutil.Process(manager.process.pid).children()
    return [one for one in family if alive(one.pid) and "PITBOSSWORKER=" in one.cmdline()[-1]]


def test_a_bomb_beside_fifty_innocents_is_the_only_one_that_fails(troubled: Cluster) -> None:
    cluster = troubled
    innocents = cluster.put("slow", 25, seconds=0.05)
    (bomb,) = cluster.put("bomb")
    innocents += cluster.put("slow", 25, seconds=0.05)
    manager = cluster.manager(pool(workers=1, concurrency=64, max_restarts=10))
    cluster.until(lambda: cluster.finished() == 51, within=60)
    poison = cluster.task(bomb)
    assert (poison.state, poison.crashes) == (State.FAILED, 3)
    assert poison.error is not None
    assert poison.error.category == "poison"
    for one in innocents:
        task = cluster.task(one)
        assert (task.state, task.attempts, task.crashes) == (State.COMPLETED, 1, 0)
        assert task.losses <= 1
    assert manager.end() == 0
