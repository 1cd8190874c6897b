"""One run for `figures_cost`, as a program: it imports Pitboss from PYTHONPATH. Prints microseconds per task."""

import asyncio
import json
import os
import random
import resource
import sys
from pathlib import Path

from pitboss import wiring
from pitboss.engines.protocol import Store
from pitboss.manager.manager import Manager, Plan
from pitboss.model.duration import SECOND
from pitboss.model.ids import IdMaker
from pitboss.model.pool import PoolSpec
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.worker.describe import described

_APP = """
from pitboss import App

app = App()


@app.task
async def nothing(number: int) -> None:
    return None
"""
_GROUP = 100
_SINGLES = 10
_TICKS = os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usages)


def server_seconds(pid: int | None) -> float:
    """Processor time of a server with all its processes, those that have ended too."""
    if pid is None:
        return 0.0
    family = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return sum(map(_ticks, family)) / _TICKS


def _ticks(pid: int) -> int:
    """Of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return sum(map(int, fields[11:15]))


async def put(store: Store, count: int) -> None:
    """A tenth of the tasks one by one."""
    new_id = IdMaker(wiring.SystemClock().now, wiring.randbits())
    tasks = [NewTask(id=new_id(), handler="nothing", params='{"number":1}') for _ in range(count)]
    singles = count // _SINGLES
    for task in tasks[:singles]:
        await store.put([task])
    for start in range(singles, count, _GROUP):
        await store.put(tasks[start : start + _GROUP])


async def run(url: str, count: int, folder: Path, server: int | None) -> float:
    app = folder / "app.py"
    app.write_text(_APP, encoding="utf-8")
    store = wiring.make_engine(url)
    await store.open()
    description = described(str(app))
    await store.register(description.handlers)
    began = own_seconds() + server_seconds(server)
    await put(store, count)
    plan = Plan(
        target=str(app),
        pools=(PoolSpec(name="default", min_workers=2, max_workers=2, concurrency=16),),
        ttl=15 * SECOND,
        drain_seconds=10,
    )
    manager = Manager(
        store,
        plan,
        description,
        make_engine=lambda: wiring.make_engine(url),
        clock=store.clock,
        luck=random.Random(1).random,
        tell=lambda _: None,
    )
    running = asyncio.create_task(manager.run())
    await ended(store, count)
    manager.stop()
    await running
    await store.close()
    return (own_seconds() + server_seconds(server) - began) / count * 1_000_000


async def ended(store: Store, count: int) -> None:
    """Returns when all tasks are completed."""
    while True:
        if sum(queue.counts.get(State.COMPLETED, 0) for queue in await store.queues()) >= count:
            return
        await asyncio.sleep(0.2)


def main() -> None:
    url, count, folder, server = sys.argv[1:]
    print(json.dumps(asyncio.run(run(url, int(count), Path(folder), int(server) or None))))


if __name__ == "__main__":
    main()
