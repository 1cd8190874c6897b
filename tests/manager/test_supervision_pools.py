"""How a pool's settings and an operator's wishes change its workers."""

import socket
from itertools import pairwise

from pitboss.model.duration import SECOND
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from tests.manager.cluster import Cluster, ManagerProcess, alive, pool

LIVING = (WorkerState.STARTING, WorkerState.IDLE, WorkerState.PROCESSING)


def living(cluster: Cluster, name: str) -> int:
    return sum(worker.state in LIVING for worker in cluster.workers(name))


def runs(cluster: Cluster, ids: list[str]) -> list[tuple[int, int]]:
    """When each task started and ended, sorted."""
    tasks = [cluster.task(one) for one in ids]
    return sorted((task.started_at or 0, task.finished_at or 0) for task in tasks)


def test_the_settings_of_pools_hold(troubled: Cluster) -> None:
    cluster = troubled
    half, three = SECOND // 2, SECOND * 3 // 10
    manager = cluster.manager(
        pool("tasks", workers=1, queues=("tasks",), concurrency=1, max_tasks_per_worker=3),
        pool("age", workers=1, queues=("age",), concurrency=1, max_age=3 * SECOND),
        pool("stagger", workers=3, queues=("stagger",), stagger=(SECOND, SECOND)),
        pool("delay", workers=1, queues=("delay",), concurrency=1, delay=(half, half)),
        pool("pair", workers=1, queues=("pair",), concurrency=2, delay=(three, half)),
        pool("env", workers=1, queues=("env",), env={"SHOP": "corner", "GATE": ""}),
        ttl="1500ms",
    )
    tasks = cluster.put("slow", 20, queue="tasks", seconds=0.2)
    age = cluster.put("slow", 40, queue="age", seconds=0.2)
    delay = cluster.put("quick", 6, queue="delay")
    pair = [cluster.put("slow", queue="pair", seconds=0.1 + number % 2 * 0.15)[0] for number in range(12)]
    (env,) = cluster.put("environment", queue="env", name="SHOP")
    cluster.until(lambda: cluster.finished() == 79, within=40)
    assert {(task.state, task.attempts, task.losses) for task in cluster.tasks()} == {(State.COMPLETED, 1, 0)}
    assert cluster.task(env).value() == "corner"
    _workers_were_replaced(cluster, manager, tasks, age)
    starts = sorted(worker.started_at for worker in cluster.workers("stagger"))
    assert all(later - sooner >= SECOND * 0.9 for sooner, later in pairwise(starts)), starts
    _tasks_kept_their_distance(cluster, delay, half)
    _tasks_kept_their_distance(cluster, pair, three)
    assert {worker.crashes for worker in cluster.workers()} == {0}
    assert manager.end() == 0


def _workers_were_replaced(cluster: Cluster, manager: ManagerProcess, tasks: list[str], age: list[str]) -> None:
    assert manager.said("tasks; it is replaced after its tasks")
    assert manager.said("is 3s old; it is replaced after its tasks")
    by_task = {line[1]: line[3] for line in cluster.traced("began")}
    assert len({by_task[one] for one in tasks}) >= 2
    assert len({by_task[one] for one in age}) >= 3


def _tasks_kept_their_distance(cluster: Cluster, ids: list[str], least: int) -> None:
    """After a task has ended, its worker starts none for at least this long."""
    spans = runs(cluster, ids)
    slack = SECOND // 50  # the store's times are whole milliseconds, from another process
    for number, (began, _) in enumerate(spans):
        before = [end for other, (_, end) in enumerate(spans) if other != number and end <= began]
        assert not before or began - max(before) >= least - slack, spans


def test_an_operator_pauses_scales_and_stops_pools_on_one_host_or_on_all(troubled: Cluster) -> None:
    cluster, here = troubled, socket.gethostname()
    manager = cluster.manager(
        pool("first", workers=2, queues=("first",), concurrency=1),
        pool("second", workers=1, queues=("second",), concurrency=1),
        ttl="1500ms",
    )
    cluster.until(lambda: living(cluster, "first") == 2 and living(cluster, "second") == 1)
    running = cluster.put("slow", 2, queue="first", seconds=2.5)
    cluster.until(lambda: len(cluster.traced("began")) == 2)
    cluster.wish("first", paused=True)
    cluster.until(lambda: manager.said("pool first is paused"))
    waiting = cluster.put("quick", 4, queue="first")
    others = cluster.put("quick", 4, queue="second")
    cluster.until(lambda: all(cluster.task(one).state is State.COMPLETED for one in running + others))
    assert {cluster.task(one).state for one in waiting} == {State.PENDING}, "running tasks continue, no new ones start"
    assert [told.paused for one in cluster.snapshots() for told in one.pools] == [True, False]
    cluster.wish("first", paused=False)
    cluster.until(lambda: all(cluster.task(one).state is State.COMPLETED for one in waiting))

    cluster.wish("first", size=4)
    cluster.until(lambda: living(cluster, "first") == 4)
    cluster.wish("first", host="elsewhere", size=7)
    cluster.wish("first", host=here, size=1)
    cluster.until(lambda: living(cluster, "first") == 1, what="a wish for this host overrides one for all")
    pids = {worker.pid for worker in manager.workers()}
    cluster.until(lambda: len(manager.workers()) == 2, what="one of each")
    (slow,) = cluster.put("slow", queue="second", seconds=2)
    cluster.until(lambda: len(cluster.traced("began")) == 3)
    cluster.wish("second", size=0)
    cluster.until(lambda: len(manager.workers()) == 1)
    # The worker exits after it sent the result; writing that takes another moment.
    cluster.until(lambda: cluster.task(slow).state.finished, within=5)
    assert (cluster.task(slow).state, cluster.task(slow).losses) == (State.COMPLETED, 0), "it was not interrupted"
    (later,) = cluster.put("quick", queue="second")
    cluster.wish("second", size=2)
    cluster.until(lambda: cluster.task(later).state is State.COMPLETED)
    assert {task.attempts for task in cluster.tasks()} == {1}
    assert manager.end() == 0
    assert not any(alive(pid) for pid in pids)
