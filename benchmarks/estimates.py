"""Whether the estimate of `pitboss plan` holds: real runs on SQLite, each bound by something else.

A manager with four workers empties a queue of 1,200 tasks (`estimate_app.py`). When 2 % have ended, `operate.plan` is
asked; the middle of its estimate is compared with the time until the last task has really ended.
"""

import tempfile
import time
from pathlib import Path
from typing import cast

from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND
from pitboss.model.resource import NewResource
from pitboss.model.states import State
from pitboss.operate.plan import Launch, QueuePlan, read_plan
from pitboss.worker.describe import described
from tests.manager.cluster import Cluster, pool

APP = str(Path(__file__).with_name("estimate_app.py"))
TASKS, WORKERS, MEMBERS = 1200, 4, 5
ASKED_AFTER, OFF = 0.02, 0.15
LIMIT = 200.0
# Queue, handler, and what should bind.
RUNS = (("busy", "crawl", "workers"), ("rated", "ask", "rate"), ("leased", "fetch", "resources"))


def measured() -> list[str]:
    """Prints a table; returns what was off by too much."""
    print(f"\nestimates after {ASKED_AFTER:.0%} of {TASKS:,} tasks, and when these had ended, in seconds\n")
    print("| bound by | estimate | middle | real | off |\n|---|---|--:|--:|--:|", flush=True)
    missed = list[str]()
    for queue, handler, bound in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            found, took = _run(Path(folder), queue, handler)
        assert found.estimate.time is not None
        time_, binds = found.estimate.time, found.estimate.bound
        middle = time_.middle / SECOND
        kind = "nothing" if binds is None else binds.kind
        said = f"{time_.least / SECOND:.0f}–{time_.most / SECOND:.0f}"
        print(f"| {kind} | {said} | {middle:.1f} | {took:.1f} | {middle / took - 1:+.1%} |", flush=True)
        if kind != bound:
            missed.append(f"queue {queue} is bound by {kind}, not by {bound}")
        if abs(middle / took - 1) > OFF:
            missed.append(f"queue {queue}: the estimate is off by {middle / took - 1:+.1%}, at most {OFF:.0%}")
    return missed


def _run(folder: Path, queue: str, handler: str) -> tuple[QueuePlan, float]:
    """The plan after a part of the work, and the seconds that the rest took."""
    house = Cluster(f"sqlite:///{folder}/estimate.db", folder, APP)
    store = cast("FullStore", house.engine)
    try:
        told = described(APP)
        house.do(store.declare(told.declared))
        for one in told.resources:
            house.do(store.declare_pool(one.name, one.rules))
            house.do(store.add_resources(one.name, [NewResource(name=f"p{number}") for number in range(MEMBERS)]))
        for number in range(TASKS):
            house.put(handler, 1, queue, number=number)
        house.manager(pool("crawlers", workers=WORKERS, concurrency=1))
        house.until(lambda: _done(house) >= ASKED_AFTER * TASKS, within=LIMIT)
        asked = time.monotonic()
        (found,) = [
            one for one in house.do(read_plan(store, Launch(), store.clock.now())).queues if one.queue.name == queue
        ]
        house.until(lambda: _done(house) == TASKS, within=LIMIT)
        return found, time.monotonic() - asked
    finally:
        house.close()


def _done(house: Cluster) -> int:
    return house.counts().get(State.COMPLETED, 0)
