"""Drills that the tests run briefly, and `benchmarks/supervision.py` at length."""

import random
import time
from collections import Counter
from functools import partial
from typing import NamedTuple

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


def ready(house: House, manager: ManagerProcess, count: int, within: float = 30) -> None:
    """Wait until so many workers take tasks."""
    house.until(lambda: sum(" is ready (pid" in line for line in manager.lines) >= count, within=within)
