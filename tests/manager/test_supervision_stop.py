"""How a manager stops: it waits for what runs, hurries when told twice, and leaves nothing behind."""

import signal
from pathlib import Path

import msgspec

from pitboss.model.desired_state import DesiredManager, manager_key
from pitboss.model.states import State
from tests.manager.drills import ready
from tests.manager.house import House, alive, pool


def ask(house: House, **wanted: bool) -> None:
    """What an operator wants of the one manager."""
    (session,) = (one.number for one in house.do(house.engine.sessions()) if not one.ended)
    house.do(house.engine.wish(manager_key(session), msgspec.json.encode(DesiredManager(**wanted)).decode(), by="test"))


def test_a_stop_waits_for_what_runs_and_gives_back_the_rest(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, concurrency=2), pool("idle", workers=1, queues=("none",)))
    running = house.put("slow", 2, seconds=2)
    house.until(lambda: len(house.traced("began")) == 2)
    waiting = house.put("quick", 10)
    pids = [worker.pid for worker in manager.workers()]
    assert manager.end() == 0
    assert manager.said("waiting up to 20 s for 2 running task(s): 2 × slow")
    assert {house.task(one).state for one in running} == {State.COMPLETED}
    assert {(house.task(one).state, house.task(one).attempts) for one in waiting} == {(State.PENDING, 0)}
    assert not any(alive(pid) for pid in pids)
    assert [session for session in house.do(house.engine.sessions()) if not session.ended] == []


def test_a_second_stop_ends_now_also_what_ignores_everything(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=2, concurrency=2))
    ids = house.put("stubborn_without_limit") + house.put("holds_the_interpreter")
    house.until(lambda: house.traced("stubborn") and house.traced("holds"))
    pids = [worker.pid for worker in manager.workers()]
    manager.signal(signal.SIGTERM)
    house.until(lambda: manager.said("Stop again to end now"))
    manager.signal(signal.SIGTERM)
    assert manager.process.wait(timeout=5) == 0
    assert not any(alive(pid) for pid in pids)
    for one in ids:
        task = house.task(one)
        assert (task.state, task.attempts, task.losses, task.crashes) == (State.PENDING, 0, 0, 0)


def test_a_stop_while_workers_start_ends_them(troubled: House, tmp_path: Path) -> None:
    house = troubled
    manager = house.manager(pool(workers=3, env={"GATE": str(tmp_path / "never")}))
    house.until(manager.workers)
    pids = [worker.pid for worker in manager.workers()]
    manager.signal(signal.SIGTERM)
    assert manager.process.wait(timeout=6) == 0
    assert not any(alive(pid) for pid in pids)


def test_an_operator_drains_a_manager_and_stops_it_from_elsewhere(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1))
    ready(house, manager, 1)
    (running,) = house.put("slow", seconds=2)
    house.until(lambda: house.traced("began"))
    ask(house, drain=True)
    house.until(lambda: manager.said("draining: no new tasks are taken"))
    (waiting,) = house.put("quick")
    house.until(lambda: house.task(running).state is State.COMPLETED)
    assert house.task(waiting).state is State.PENDING
    ask(house)
    house.until(lambda: house.task(waiting).state is State.COMPLETED)
    ask(house, stop=True)
    assert manager.process.wait(timeout=20) == 0
    assert manager.said("an operator asked this manager to stop")
