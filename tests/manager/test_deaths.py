"""kill -9 and SIGSTOP of workers and managers in the middle of work: all ends once, and no loss costs an attempt."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from pitboss.model.states import State
from tests.manager.house import House, alive

MANY = 5000


def _reached(house: House, share: float) -> bool:
    return house.finished() >= MANY * share


def assert_all_ended_once(house: House, count: int, *, kills: int = 0) -> None:
    """A worker that is killed blames its task if that was alone in it at that moment, and nobody else."""
    tasks = house.tasks()
    assert len(tasks) == count
    for task in tasks:
        assert (task.state, task.attempts) == (State.COMPLETED, 1), task
    assert sum(task.crashes for task in tasks) <= kills
    assert house.counts() == {State.COMPLETED: count}


def test_kill_9_of_workers_loses_and_doubles_nothing(house: House) -> None:
    house.put("quick", MANY, number=1)
    manager = house.manager()
    killed = 0
    for share in (0.1, 0.3, 0.5, 0.7):
        house.until(partial(_reached, house, share))
        victims = manager.workers()
        if victims:
            victims[0].send_signal(signal.SIGKILL)
            killed += 1
    house.until(lambda: house.finished() == MANY, within=60)
    assert killed >= 3
    assert manager.said("was killed by SIGKILL")
    assert_all_ended_once(house, MANY, kills=killed)
    assert manager.end() == 0


def test_kill_9_of_a_manager_ends_its_workers_and_another_takes_over_at_once(house: House) -> None:
    house.put("quick", MANY, number=1)
    first = house.manager(ttl="60s")
    house.until(lambda: house.finished() >= MANY * 0.2)
    workers = first.workers()
    assert workers
    first.signal(signal.SIGKILL)
    first.process.wait()
    house.until(lambda: not any(alive(worker.pid) for worker in workers), within=3, what="its workers end")
    second = house.manager()
    # Well within the dead session's minute: its host proved it dead.
    house.until(lambda: house.finished() == MANY, within=40)
    assert second.said("is gone; its tasks are taken over")
    assert_all_ended_once(house, MANY)
    assert second.end() == 0


def test_a_manager_that_was_stopped_past_its_session_is_refused_when_it_goes_on(house: House) -> None:
    ids = house.put("slow", 4, seconds=2)
    first = house.manager(workers=2, concurrency=2, ttl="2s")
    house.until(lambda: len(house.traced("began")) == 4)
    family = [first.process.pid, *(worker.pid for worker in first.workers())]
    for pid in family:
        _signal(pid, signal.SIGSTOP)
    second = house.manager(workers=2, concurrency=2)
    house.until(lambda: len(house.traced("began")) == 8, within=20, what="the other manager runs them again")
    for pid in family:
        _signal(pid, signal.SIGCONT)
    house.until(lambda: house.finished() == 4)
    house.until(lambda: first.said("the session was lost"), within=10)
    for task in (house.task(one) for one in ids):
        assert (task.state, task.attempts, task.losses) == (State.COMPLETED, 1, 1)
        # The accepted outcome is the second claim's: what the first said on waking was refused.
        assert task.claim >= 2
    assert first.end() == 0
    assert second.end() == 0


def test_a_bomb_fails_as_poison_and_takes_nobody_with_it(lite_house: House) -> None:
    house = lite_house
    (bomb,) = house.put("bomb")
    innocents = house.put("slow", 6, seconds=0.5)
    house.manager(workers=2, concurrency=4)
    house.until(lambda: house.finished() == 7, within=40)
    failed = house.task(bomb)
    assert failed.state is State.FAILED
    assert failed.error is not None
    assert failed.error.category == "poison"
    assert "exit code 3" in failed.error.message
    assert failed.crashes == 3
    assert {house.task(one).state for one in innocents} == {State.COMPLETED}
    assert {house.task(one).crashes for one in innocents} == {0}


def test_processes_that_a_handler_started_end_with_their_worker(lite_house: House) -> None:
    house = lite_house
    house.put("with_child_process")
    manager = house.manager(workers=1)
    note = house.traces.with_name("traces.child")
    house.until(note.exists)
    house.until(note.read_text)
    child = int(note.read_text())
    assert alive(child)
    manager.signal(signal.SIGKILL)
    manager.process.wait()
    house.until(lambda: not alive(child), within=5)


@pytest.fixture(autouse=True)
def _traces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACES", f"{tmp_path}/traces")


def _signal(pid: int, number: int) -> None:
    os.kill(pid, number)
