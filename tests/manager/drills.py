"""Drills that the tests run briefly, and `benchmarks/supervision.py` at length."""

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
from tests.manager.house import House, ManagerProcess, pool

BACKLOG = 150
_AT_WORK = (WorkerState.IDLE, WorkerState.PROCESSING)


class Rolled(NamedTuple):
    """What came of rolling restarts under load."""

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


def rolling(house: House, times: int) -> Rolled:
    """Restart a pool of two again and again while there is always more to do than it can do at once."""
    manager = house.manager(pool(concurrency=8), ttl="1500ms")
    house.until(lambda: manager.said("default-1 is ready") and manager.said("default-2 is ready"))
    began, ids, luck = time.monotonic(), list[str](), random.Random(1)
    for generation in range(1, times + 1):
        house.wish("default", generation=generation)
        house.until(partial(_rolled, house, ids, luck, generation), within=60, what="it has rolled")
    seconds = time.monotonic() - began
    house.until(lambda: house.finished() == len(ids), within=60)
    assert manager.end() == 0
    return _counted(house, times, ids, seconds)


def _rolled(house: House, ids: list[str], luck: random.Random, generation: int) -> bool:
    if house.counts().get(State.PENDING, 0) < BACKLOG:
        for _ in range(4):
            ids += house.put("slow", BACKLOG // 4, seconds=luck.choice([0, 0.01, 0.05, 0.2]))
    workers = house.workers()
    return (
        [worker.generation for worker in workers if worker.state in _AT_WORK]
        == [generation] * 2
        == [worker.generation for worker in workers]
    )


def _counted(house: House, times: int, ids: list[str], seconds: float) -> Rolled:
    began, ended = (Counter(line[1] for line in house.traced(word)) for word in ("began", "ended"))
    tasks = {task.id: task for task in house.tasks()}
    return Rolled(
        restarts=times,
        tasks=len(ids),
        workers=len({line[3] for line in house.traced("began")}),
        seconds=seconds,
        lost=sum(one not in tasks or tasks[one].state is not State.COMPLETED for one in ids),
        twice=sum(began[one] != 1 or ended[one] != 1 for one in ids),
        spent=sum((task.attempts, task.losses) != (1, 0) for task in tasks.values()),
    )


class Recovered(NamedTuple):
    """How long after the end of their workers tasks ran again, in seconds, beyond what they had to wait for anyway."""

    delays: list[float]

    def share(self, part: float) -> float:
        return sorted(self.delays)[min(len(self.delays) - 1, int(len(self.delays) * part))]

    def __str__(self) -> str:
        p50, p99, worst = (self.share(part) for part in (0.5, 0.99, 1))
        return f"{len(self.delays)} kills: p50 {p50:.2f} s, p99 {p99:.2f} s, longest {worst:.2f} s"


def beside_another(house: House, kills: int) -> Recovered:
    """Kill the worker that runs a task, while another one of its pool is at work."""
    manager = house.manager(pool(concurrency=4, restart_delay=0, max_restarts=10_000))
    ready(house, manager, 2)
    delays = []
    for count in range(kills):
        house.put("slow", 20, seconds=0.05)
        delays.append(killed(house))
        ready(house, manager, 3 + count)
    return _recovered(house, manager, delays)


def with_nobody_else(house: House, pools: int) -> Recovered:
    """Kill the only worker of a pool, three times each: beyond the delay of its restart, which doubles."""
    specs = [pool(f"p{number}", workers=1, queues=(f"p{number}",)) for number in range(pools)]
    manager = house.manager(*specs)
    ready(house, manager, pools, within=60)
    turns = [(spec.name, (spec.restart_delay << count) / SECOND) for spec in specs for count in range(3)]
    delays = [killed(house, queue=name) - delay for name, delay in turns]
    return _recovered(house, manager, delays)


def on_another_host(house: House, kills: int, ttl: float) -> Recovered:
    """Kill a manager with its workers: only the end of its session frees its tasks, for the one that is left."""
    delays = []
    for count in range(kills):
        victim = house.manager(pool(workers=1), ttl=f"{ttl}s", elsewhere=f"host-{count}")
        ready(house, victim, 1)
        (task,) = house.put("timed")
        house.until(partial(_began, house, task))
        survivor = house.manager(pool(workers=1), ttl=f"{ttl}s")
        ready(house, survivor, 1)
        house.do(asyncio.sleep(random.uniform(0, ttl / 2)))
        at = time.time()
        victim.signal(signal.SIGKILL)
        victim.process.wait()
        delays.append(_ran_again(house, task) - at - ttl)
        survivor.end()
    return Recovered(delays)


def killed(house: House, queue: str = "default") -> float:
    """Kill the worker that runs a task; how long until the task runs again."""
    (task,) = house.put("timed", queue=queue)
    house.until(lambda: _began(house, task))
    at = time.time()
    os.kill(int(_began(house, task)[0][3]), signal.SIGKILL)
    return _ran_again(house, task) - at


def _ran_again(house: House, task: str) -> float:
    house.until(lambda: len(_began(house, task)) == 2)
    return float(_began(house, task)[1][4])


def _began(house: House, task: str) -> list[list[str]]:
    return [line for line in house.traced("timed") if line[1] == task]


def _recovered(house: House, manager: ManagerProcess, delays: list[float]) -> Recovered:
    house.until(lambda: house.finished() == len(house.tasks()))
    assert {(task.state, task.attempts) for task in house.tasks()} == {(State.COMPLETED, 1)}
    assert manager.end() == 0
    return Recovered(delays)


def ready(house: House, manager: ManagerProcess, count: int, within: float = 30) -> None:
    """Wait until so many workers take tasks."""
    house.until(lambda: sum(" is ready (pid" in line for line in manager.lines) >= count, within=within)
