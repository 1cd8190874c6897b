"""What a pool's settings and an operator's wishes do to its workers."""

import socket
from itertools import pairwise

from pitboss.model.duration import SECOND
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from tests.manager.house import House, ManagerProcess, alive, pool

LIVING = (WorkerState.STARTING, WorkerState.IDLE, WorkerState.PROCESSING)


def living(house: House, name: str) -> int:
    return sum(worker.state in LIVING for worker in house.workers(name))


def runs(house: House, ids: list[str]) -> list[tuple[int, int]]:
    """When each of them began and ended, in that order."""
    tasks = [house.task(one) for one in ids]
    return sorted((task.started_at or 0, task.finished_at or 0) for task in tasks)


def test_the_settings_of_pools_hold(troubled: House) -> None:
    house = troubled
    half, three = SECOND // 2, SECOND * 3 // 10
    manager = house.manager(
        pool("tasks", workers=1, queues=("tasks",), concurrency=1, max_tasks_per_worker=3),
        pool("age", workers=1, queues=("age",), concurrency=1, max_age=3 * SECOND),
        pool("stagger", workers=3, queues=("stagger",), stagger=(SECOND, SECOND)),
        pool("delay", workers=1, queues=("delay",), concurrency=1, delay=(half, half)),
        pool("pair", workers=1, queues=("pair",), concurrency=2, delay=(three, half)),
        pool("env", workers=1, queues=("env",), env={"SHOP": "corner", "GATE": ""}),
        ttl="1500ms",
    )
    tasks = house.put("slow", 20, queue="tasks", seconds=0.2)
    age = house.put("slow", 40, queue="age", seconds=0.2)
    delay = house.put("quick", 6, queue="delay")
    pair = [house.put("slow", queue="pair", seconds=0.1 + number % 2 * 0.15)[0] for number in range(12)]
    (env,) = house.put("environment", queue="env", name="SHOP")
    house.until(lambda: house.finished() == 79, within=40)
    assert {(task.state, task.attempts, task.losses) for task in house.tasks()} == {(State.COMPLETED, 1, 0)}
    assert house.task(env).value() == "corner"
    _workers_were_replaced(house, manager, tasks, age)
    starts = sorted(worker.started_at for worker in house.workers("stagger"))
    assert all(later - sooner >= SECOND * 0.9 for sooner, later in pairwise(starts)), starts
    _tasks_kept_their_distance(house, delay, half)
    _tasks_kept_their_distance(house, pair, three)
    assert {worker.crashes for worker in house.workers()} == {0}
    assert manager.end() == 0


def _workers_were_replaced(house: House, manager: ManagerProcess, tasks: list[str], age: list[str]) -> None:
    assert manager.said("tasks; it is replaced after its tasks")
    assert manager.said("is 3s old; it is replaced after its tasks")
    by_task = {line[1]: line[3] for line in house.traced("began")}
    assert len({by_task[one] for one in tasks}) >= 2
    assert len({by_task[one] for one in age}) >= 3


def _tasks_kept_their_distance(house: House, ids: list[str], least: int) -> None:
    """After a task has ended, its worker begins none for at least so long."""
    spans = runs(house, ids)
    slack = SECOND // 50  # the store's times are whole milliseconds, and taken elsewhere
    for number, (began, _) in enumerate(spans):
        before = [end for other, (_, end) in enumerate(spans) if other != number and end <= began]
        assert not before or began - max(before) >= least - slack, spans


def test_an_operator_pauses_scales_and_stops_pools_on_one_host_or_on_all(troubled: House) -> None:
    house, here = troubled, socket.gethostname()
    manager = house.manager(
        pool("first", workers=2, queues=("first",), concurrency=1),
        pool("second", workers=1, queues=("second",), concurrency=1),
        ttl="1500ms",
    )
    house.until(lambda: living(house, "first") == 2 and living(house, "second") == 1)
    running = house.put("slow", 2, queue="first", seconds=2.5)
    house.until(lambda: len(house.traced("began")) == 2)
    house.wish("first", paused=True)
    house.until(lambda: manager.said("pool first is paused"))
    waiting = house.put("quick", 4, queue="first")
    others = house.put("quick", 4, queue="second")
    house.until(lambda: all(house.task(one).state is State.COMPLETED for one in running + others))
    assert {house.task(one).state for one in waiting} == {State.PENDING}, "what runs goes on, nothing new begins"
    assert [told.paused for one in house.snapshots() for told in one.pools] == [True, False]
    house.wish("first", paused=False)
    house.until(lambda: all(house.task(one).state is State.COMPLETED for one in waiting))

    house.wish("first", size=4)
    house.until(lambda: living(house, "first") == 4)
    house.wish("first", host="elsewhere", size=7)
    house.wish("first", host=here, size=1)
    house.until(lambda: living(house, "first") == 1, what="the word for this host counts more")
    pids = {worker.pid for worker in manager.workers()}
    house.until(lambda: len(manager.workers()) == 2, what="one of each")
    (slow,) = house.put("slow", queue="second", seconds=2)
    house.until(lambda: len(house.traced("began")) == 3)
    house.wish("second", size=0)
    house.until(lambda: len(manager.workers()) == 1)
    # Its worker is gone once its result was heard; that it is written takes a moment more.
    house.until(lambda: house.task(slow).state.finished, within=5)
    assert (house.task(slow).state, house.task(slow).losses) == (State.COMPLETED, 0), "it was not interrupted"
    (later,) = house.put("quick", queue="second")
    house.wish("second", size=2)
    house.until(lambda: house.task(later).state is State.COMPLETED)
    assert {task.attempts for task in house.tasks()} == {1}
    assert manager.end() == 0
    assert not any(alive(pid) for pid in pids)
