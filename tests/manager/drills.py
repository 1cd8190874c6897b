"""Drills: the tests run them briefly, `benchmarks/supervision.py` at length."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from functools import partial
from typing import NamedTuple

from pitboss.model.duration import SECOND
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from tests.manager.cluster import Cluster, ManagerProcess, pool

BACKLOG = 150
_AT_WORK = (WorkerState.IDLE, WorkerState.PROCESSING)


class Rolled(NamedTuple):
    """The result of rolling restarts under load."""

    restarts: int
    tasks: int
    workers: int
    seconds: float
    lost: int
    twice: int
    spent: int

    @property
    def faults(self) -> list[str]:
        told = {"lost": self.lost, "run twice": self.twice, "with other than one attempt and no loss": self.spent}
        return [f"{count} task(s) {what}" for what, count in told.items() if count]


def rolling(cluster: Cluster, times: int) -> Rolled:
    """Restart a pool of two again and again while it always has a backlog."""
    manager = cluster.manager(pool(concurrency=8), ttl="1500ms")
    cluster.until(lambda: manager.said("default-1 is ready") and manager.said("default-2 is ready"))
    began, ids, luck = time.monotonic(), list[str](), random.Random(1)
    for generation in range(1, times + 1):
        cluster.wish("default", generation=generation)
        cluster.until(partial(_rolled, cluster, ids, luck, generation), within=60, what="it has rolled")
    seconds = time.monotonic() - began
    cluster.until(lambda: cluster.finished() == len(ids), within=60)
    assert manager.end() == 0
    return _counted(cluster, times, ids, seconds)


def _rolled(cluster: Cluster, ids: list[str], luck: random.Random, generation: int) -> bool:
    if cluster.counts().get(State.PENDING, 0) < BACKLOG:
        for _ in range(4):
            ids += cluster.put("slow", BACKLOG // 4, seconds=luck.choice([0, 0.01, 0.05, 0.2]))
    workers = cluster.workers()
    return (
        [worker.generation for worker in workers if worker.state in _AT_WORK]
        == [generation] * 2
        == [worker.generation for worker in workers]
    )


def _counted(cluster: Cluster, times: int, ids: list[str], seconds: float) -> Rolled:
    began, ended = (Counter(line[1] for line in cluster.traced(word)) for word in ("began", "ended"))
    tasks = {task.id: task for task in cluster.tasks()}
    return Rolled(
        restarts=times,
        tasks=len(ids),
        workers=len({line[3] for line in cluster.traced("began")}),
        seconds=seconds,
        lost=sum(one not in tasks or tasks[one].state is not State.COMPLETED for one in ids),
        twice=sum(began[one] != 1 or ended[one] != 1 for one in ids),
        spent=sum((task.attempts, task.losses) != (1, 0) for task in tasks.values()),
    )


class Recovered(NamedTuple):
    """How many seconds after the death of their workers tasks ran again, beyond the wait that is expected."""

    delays: list[float]

    def share(self, part: float) -> float:
        return sorted(self.delays)[min(len(self.delays) - 1, int(len(self.delays) * part))]

    def __str__(self) -> str:
        p50, p99, worst = (self.share(part) for part in (0.5, 0.99, 1))
        return f"{len(self.delays)} kills: p50 {p50:.2f} s, p99 {p99:.2f} s, longest {worst:.2f} s"


def beside_another(cluster: Cluster, kills: int) -> Recovered:
    """Kill the worker that runs a task, while another worker of its pool is alive."""
    manager = cluster.manager(pool(concurrency=4, restart_delay=0, max_restarts=10_000))
    ready(cluster, manager, 2)
    delays = []
    for count in range(kills):
        cluster.put("slow", 20, seconds=0.05)
        delays.append(killed(cluster))
        ready(cluster, manager, 3 + count)
    return _recovered(cluster, manager, delays)


def without_another(cluster: Cluster, pools: int) -> Recovered:
    """Kill the only worker of each pool three times; its restart delay does not apply."""
    specs = [
        pool(f"p{number}", workers=1, queues=(f"p{number}",), restart_delay=60 * SECOND) for number in range(pools)
    ]
    manager = cluster.manager(*specs)
    ready(cluster, manager, pools, within=60)
    delays = [killed(cluster, queue=spec.name) for spec in specs for _ in range(3)]
    return _recovered(cluster, manager, delays)


def on_another_host(cluster: Cluster, kills: int, ttl: float) -> Recovered:
    """Kill a manager with its workers: another manager gets its tasks only when its session expires."""
    delays = []
    for count in range(kills):
        victim = cluster.manager(pool(workers=1), ttl=f"{ttl}s", elsewhere=f"host-{count}")
        ready(cluster, victim, 1)
        (task,) = cluster.put("timed")
        cluster.until(partial(_began, cluster, task))
        survivor = cluster.manager(pool(workers=1), ttl=f"{ttl}s")
        ready(cluster, survivor, 1)
        cluster.do(asyncio.sleep(random.uniform(0, ttl / 2)))
        at = time.time()
        victim.signal(signal.SIGKILL)
        victim.process.wait()
        delays.append(_ran_again(cluster, task) - at - ttl)
        survivor.end()
    return Recovered(delays)


def killed(cluster: Cluster, queue: str = "default") -> float:
    """Kill the worker that runs a task; returns how long until the task runs again."""
    (task,) = cluster.put("timed", queue=queue)
    cluster.until(lambda: _began(cluster, task))
    at = time.time()
    os.kill(int(_began(cluster, task)[0][3]), signal.SIGKILL)
    return _ran_again(cluster, task) - at


def _ran_again(cluster: Cluster, task: str) -> float:
    cluster.until(lambda: len(_began(cluster, task)) == 2)
    return float(_began(cluster, task)[1][4])


def _began(cluster: Cluster, task: str) -> list[list[str]]:
    return [line for line in cluster.traced("timed") if line[1] == task]


def _recovered(cluster: Cluster, manager: ManagerProcess, delays: list[float]) -> Recovered:
    cluster.until(lambda: cluster.finished() == len(cluster.tasks()))
    assert {(task.state, task.attempts) for task in cluster.tasks()} == {(State.COMPLETED, 1)}
    assert manager.end() == 0
    return Recovered(delays)


def ready(cluster: Cluster, manager: ManagerProcess, count: int, within: float = 30) -> None:
    """Wait until `count` workers have become ready."""
    cluster.until(lambda: sum(" is ready (pid" in line for line in manager.lines) >= count, within=within)
