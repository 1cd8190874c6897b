"""Hooks behind a whole manager: what happens to its tasks, workers and pools reaches them."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pitboss.model.states import State
from tests.manager.cluster import Cluster, ManagerProcess, alive, pool

TARGET = Path(__file__).with_name("hooked.py")


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("TRACES", str(tmp_path / "traces"))
    cluster = Cluster(f"sqlite:///{tmp_path}/hooked.db", tmp_path, str(TARGET))
    try:
        yield cluster
    finally:
        cluster.close()


def hook_processes(manager: ManagerProcess) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(manager.process.pid).children():
        with suppress(psutil.Error):  # it has just ended
            if "pitboss.worker.hooks_main" in child.cmdline():
                found.append(child)
    return found


def test_tasks_and_workers_are_told_to_the_hooks(hooked: Cluster) -> None:
    cluster = hooked
    (done,) = cluster.put("work", number=4)
    (broken,) = cluster.put("break_down")
    manager = cluster.manager(pool("download", workers=1))
    cluster.until(lambda: cluster.traced("completed") and cluster.traced("failed"))
    assert cluster.traced("completed")[0][:3] == ["completed", "4", "4"]
    assert cluster.traced("failed") == [["failed", broken, "broken"]]
    assert cluster.traced("retried") == [["retried", broken, "1", "download-1", "download"]]
    (worker,) = manager.workers()
    worker.send_signal(signal.SIGKILL)
    cluster.until(lambda: len(cluster.traced("started")) == 2)
    assert cluster.traced("started")[0] == ["started", "download-1", str(worker.pid)]
    assert cluster.traced("crashed") == [["crashed", "download-1", "-9"]]
    (hooks,) = hook_processes(manager)
    assert manager.end() == 0
    assert not alive(hooks.pid)
    assert cluster.task(done).state is State.COMPLETED


def test_the_hook_process_ends_by_itself_with_its_manager(hooked: Cluster) -> None:
    """Regression: what kills the processes that a dead manager left also killed those that were about to end."""
    manager = hooked.manager(pool(workers=1))
    hooked.until(lambda: hook_processes(manager) and hooked.traced("started"))
    assert manager.end() == 0
    assert not manager.said("SIGKILL")


def test_what_a_hook_enqueues_is_run(hooked: Cluster) -> None:
    cluster = hooked
    cluster.put("work", number=8, do="enqueue")
    cluster.manager(pool(workers=1))
    cluster.until(lambda: cluster.traced("mailed"), what="the hook of the task that a hook enqueued")
    assert [task.params for task in cluster.tasks() if task.handler == "follow"] == ['{"number":8}']


def test_pools_that_change_and_workers_that_are_given_up_are_told(hooked: Cluster) -> None:
    cluster = hooked
    manager = cluster.manager(pool("download", workers=1), pool("frail", workers=1, queues=("none",), max_restarts=0))
    cluster.until(lambda: len(cluster.traced("started")) == 2)
    frail = next(int(line[2]) for line in cluster.traced("started") if line[1] == "frail-1")
    psutil.Process(frail).send_signal(signal.SIGKILL)
    cluster.until(lambda: cluster.traced("given_up"))
    assert cluster.traced("given_up") == [["given_up", "frail-1", "1"]]
    cluster.wish("download", size=2)
    cluster.until(lambda: ["scaled", "1", "2"] in cluster.traced("scaled"))
    assert manager.end() == 0


def test_a_reload_brings_the_hooks_of_the_new_code(hooked: Cluster, tmp_path: Path) -> None:
    cluster = hooked
    place = tmp_path / "changing.py"
    place.write_text(TARGET.read_text())
    manager = cluster.manager(pool(workers=1), target=str(place))
    cluster.put("work", number=1)
    cluster.until(lambda: cluster.traced("completed"))
    (before,) = hook_processes(manager)
    place.write_text(TARGET.read_text().replace('f"completed {', 'f"other {'))
    manager.reload(manager.plan)
    cluster.until(lambda: manager.said("reloaded"))
    cluster.put("work", number=2)
    cluster.until(lambda: cluster.traced("other"))
    assert [line[1] for line in cluster.traced("completed")] == ["1"]
    (after,) = hook_processes(manager)
    assert before.pid != after.pid
    assert manager.end() == 0
    assert not alive(after.pid)
