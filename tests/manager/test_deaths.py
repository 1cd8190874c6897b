"""kill -9 and SIGSTOP of workers and managers at work: every task ends once, and no loss costs an attempt."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from pitboss.model.states import State
from tests.manager.cluster import Cluster, alive

MANY = 5000


def _reached(cluster: Cluster, share: float) -> bool:
    return cluster.finished() >= MANY * share


def assert_all_ended_once(cluster: Cluster, count: int, *, kills: int = 0) -> None:
    """A killed worker blames its task only if that task was alone in it."""
    tasks = cluster.tasks()
    assert len(tasks) == count
    for task in tasks:
        assert (task.state, task.attempts) == (State.COMPLETED, 1), task
    assert sum(task.crashes for task in tasks) <= kills
    assert cluster.counts() == {State.COMPLETED: count}


def test_kill_9_of_workers_loses_and_doubles_nothing(cluster: Cluster) -> None:
    cluster.put("quick", MANY, number=1)
    manager = cluster.manager()
    killed = 0
    for share in (0.1, 0.3, 0.5, 0.7):
        cluster.until(partial(_reached, cluster, share))
        victims = manager.workers()
        if victims:
            victims[0].send_signal(signal.SIGKILL)
            killed += 1
    cluster.until(lambda: cluster.finished() == MANY, within=60)
    assert killed >= 3
    assert manager.said("was killed by SIGKILL")
    assert_all_ended_once(cluster, MANY, kills=killed)
    assert manager.end() == 0


def test_kill_9_of_a_manager_ends_its_workers_and_another_takes_over_at_once(cluster: Cluster) -> None:
    cluster.put("quick", MANY, number=1)
    first = cluster.manager(ttl="60s")
    cluster.until(lambda: cluster.finished() >= MANY * 0.2)
    workers = first.workers()
    assert workers
    first.signal(signal.SIGKILL)
    first.process.wait()
    cluster.until(lambda: not any(alive(worker.pid) for worker in workers), within=3, what="its workers end")
    second = cluster.manager()
    # Long before the session expires: its own host knows that it is dead.
    cluster.until(lambda: cluster.finished() == MANY, within=40)
    assert second.said("is gone; its tasks are taken over")
    assert_all_ended_once(cluster, MANY)
    assert second.end() == 0


def test_a_manager_that_was_stopped_past_its_session_is_refused_when_it_goes_on(cluster: Cluster) -> None:
    ids = cluster.put("slow", 4, seconds=2)
    first = cluster.manager(workers=2, concurrency=2, ttl="2s")
    cluster.until(lambda: len(cluster.traced("began")) == 4)
    family = [first.process.pid, *(worker.pid for worker in first.workers())]
    for pid in family:
        _signal(pid, signal.SIGSTOP)
    second = cluster.manager(workers=2, concurrency=2)
    cluster.until(lambda: len(cluster.traced("began")) == 8, within=20, what="the other manager runs them again")
    for pid in family:
        _signal(pid, signal.SIGCONT)
    cluster.until(lambda: cluster.finished() == 4)
    cluster.until(lambda: first.said("the session was lost"), within=10)
    for task in (cluster.task(one) for one in ids):
        assert (task.state, task.attempts, task.losses) == (State.COMPLETED, 1, 1)
        # The outcome of the second claim was accepted; that of the first, which came later, was refused.
        assert task.claim >= 2
    assert first.end() == 0
    assert second.end() == 0


def test_a_bomb_fails_as_poison_and_no_other_task_does(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    (bomb,) = cluster.put("bomb")
    innocents = cluster.put("slow", 6, seconds=0.5)
    cluster.manager(workers=2, concurrency=4)
    cluster.until(lambda: cluster.finished() == 7, within=40)
    failed = cluster.task(bomb)
    assert failed.state is State.FAILED
    assert failed.error is not None
    assert failed.error.category == "poison"
    assert "exit code 3" in failed.error.message
    assert failed.crashes == 3
    assert {cluster.task(one).state for one in innocents} == {State.COMPLETED}
    assert {cluster.task(one).crashes for one in innocents} == {0}


def test_processes_that_a_handler_started_end_with_their_worker(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    cluster.put("with_child_process")
    manager = cluster.manager(workers=1)
    note = cluster.traces.with_name("traces.child")
    cluster.until(note.exists)
    cluster.until(note.read_text)
    child = int(note.read_text())
    assert alive(child)
    manager.signal(signal.SIGKILL)
    manager.process.wait()
    cluster.until(lambda: not alive(child), within=5)


@pytest.fixture(autouse=True)
def _traces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACES", f"{tmp_path}/traces")


def _signal(pid: int, number: int) -> None:
    os.kill(pid, number)
