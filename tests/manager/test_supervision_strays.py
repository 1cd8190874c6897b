"""What workers leave behind: daemons, children, and the neighbours of a bomb."""

import signal

import psutil

from pitboss.model.states import State
from tests.manager.drills import ready
from tests.manager.house import House, ManagerProcess, alive, pool


def daemons(house: House) -> list[int]:
    return [int(line[1]) for line in house.traced("daemon")]


def worker_of(manager: ManagerProcess, name: str) -> psutil.Process:
    (found,) = (one for one in manager.workers() if f'"name":"{name}"' in " ".join(one.cmdline()))
    return found


def test_no_daemon_outlives_its_worker_however_that_ends(troubled: House) -> None:
    house = troubled
    names = ("drained", "killed", "orphan", "held")
    manager = house.manager(*(pool(name, workers=1, queues=(name,)) for name in names))
    (drained,) = _daemon(house, "drained")
    (killed,) = _daemon(house, "killed")
    (orphan,) = _daemon(house, "orphan")

    house.wish("drained", size=0)
    house.until(lambda: not alive(drained), within=10, what="the drained worker's daemon is gone")
    house.until(lambda: manager.said(f"worker drained-1 left process {drained} behind ("), within=5)
    worker_of(manager, "killed-1").kill()
    house.until(lambda: not alive(killed), within=10, what="the killed worker's daemon is gone")
    house.until(lambda: manager.said(f"worker killed-1 left process {killed} behind ("), within=5)
    assert alive(orphan), "only the daemons of dead workers are ended"

    # One worker cannot notice that its manager is gone: its handler holds the interpreter.
    house.put("holds_the_interpreter", queue="held")
    house.until(lambda: house.traced("holds"))
    family = psutil.Process(manager.process.pid).children(recursive=True)
    manager.signal(signal.SIGKILL)
    manager.process.wait()
    house.until(lambda: not alive(orphan), within=10, what="the daemon of a killed manager's worker is gone")
    house.until(lambda: not any(alive(one.pid) for one in family), within=10, what="nothing is left")


def _daemon(house: House, queue: str) -> list[int]:
    before = daemons(house)
    house.put("leaves_a_daemon", queue=queue)
    house.until(lambda: len(daemons(house)) > len(before))
    return [one for one in daemons(house) if one not in before]


def test_a_worker_that_dies_is_missed_at_once_also_while_its_forks_hold_its_socket(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1))
    ready(house, manager, 1)
    (task,) = house.put("forks_and_dies")
    house.until(lambda: house.task(task).state is State.COMPLETED, within=10)
    assert (house.task(task).attempts, house.task(task).crashes) == (1, 1)
    assert [attempt.outcome for attempt in house.attempts(task)] == ["crashed", "completed"]
    assert manager.said("was killed by SIGKILL")
    assert manager.end() == 0


def test_a_manager_goes_on_when_its_reaper_is_killed_and_has_another(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1))
    house.until(lambda: manager.said("default-1 is ready"))
    (reaper,) = _reapers(manager)
    reaper.kill()
    (daemon,) = _daemon(house, "default")
    (worker,) = manager.workers()
    worker.kill()
    house.until(lambda: sum("default-1 is ready" in line for line in manager.lines) == 2, within=10)
    assert not alive(daemon)
    (task,) = house.put("quick")
    house.until(lambda: house.task(task).state is State.COMPLETED)
    (daemon,) = _daemon(house, "default")
    house.until(lambda: _reapers(manager), within=10, what="there is another reaper")
    manager.signal(signal.SIGKILL)
    manager.process.wait()
    house.until(lambda: not alive(daemon), within=10, what="the other reaper killed it")


def _reapers(manager: ManagerProcess) -> list[psutil.Process]:
    family = psutil.Process(manager.process.pid).children()
    return [one for one in family if alive(one.pid) and "PITBOSSWORKER=" in one.cmdline()[-1]]


def test_a_bomb_beside_fifty_innocents_is_the_only_one_that_fails(troubled: House) -> None:
    house = troubled
    innocents = house.put("slow", 25, seconds=0.05)
    (bomb,) = house.put("bomb")
    innocents += house.put("slow", 25, seconds=0.05)
    manager = house.manager(pool(workers=1, concurrency=64, max_restarts=10))
    house.until(lambda: house.finished() == 51, within=60)
    poison = house.task(bomb)
    assert (poison.state, poison.crashes) == (State.FAILED, 3)
    assert poison.error is not None
    assert poison.error.category == "poison"
    for one in innocents:
        task = house.task(one)
        assert (task.state, task.attempts, task.crashes) == (State.COMPLETED, 1, 0)
        assert task.losses <= 1
    assert manager.end() == 0
