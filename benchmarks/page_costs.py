"""What the pages of the dashboard cost on a full store: `python -m benchmarks.page_costs [--store sqlite] [--rounds 7]`

There are two stores: one with 10,000 finished tasks, 1,000 failed and 1,000 pending, and one with a hundred times as
many, each with something of everything else. Each page is read from `pitboss serve` over one connection: on an idle
store, and while a manager with two workers runs tasks. Between two pages it waits until what pages share is too old to
be used again, so that each pays for all it shows. Milliseconds until the whole page is there. It ends with exit code 1
if the longest time is above 200 ms idle or 600 ms under load, or if a page costs far more on the full store.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from benchmarks.http_load import PITBOSS, free_port, process, started
from benchmarks.stores import ENGINES
from pitboss import wiring
from pitboss.engines.protocol import FullStore, Store
from pitboss.model.filter import parsed
from pitboss.model.ids import IdMaker
from pitboss.model.task import NewTask
from tests.engines import full_store
from tests.http.web import batches, lives
from tests.http.web.pages import furnish
from tests.servers.postgres import PostgresServer

FEW, MANY = 10_000, 1_000_000
IDLE_MS, LOADED_MS = 200, 600
# Pages of the small store that take this long are not compared by their ratio: it is noise.
NOISE_MS = 15
SHARED_SECONDS = 1.05
FED = 20_000
APP = """
from pitboss import App

app = App()


@app.task(queue="drain")
async def noop(n: int) -> int:
    return n
"""
KEPT = {f"PITBOSS_RETENTION__{state}": "forever" for state in ("COMPLETED", "FAILED", "CANCELLED")}
PATHS = (
    "",
    "/queues",
    "/queues/mail",
    "/queues/mail?since=7d",
    "/?since=7d",
    "/tasks",
    "/tasks?q=state:completed",
    "/tasks?q=state:failed",
    "/tasks?q=state:pending+queue:mail&order=oldest",
    "/tasks?q=load",
    "/tasks?q=fingerprint:late",
    "/tasks?q=state:held,scheduled,pending+queue:mail",
    "/tasks/{task}",
    "/failures",
    "/failures?q=queue:mail",
    "/failures?q=error:ConnectionError",
    "/failures/late",
    "/operations",
    f"/operations/{lives.OPERATION}",
    "/workers",
    "/workers/1/default-0",
    "/pools/default",
    "/resources",
    "/resources/accounts",
    "/resources/accounts/a-1",
    "/batches",
    "/batches/{batch}",
    "/schedules",
    "/schedules/often",
    "/events",
    f"/events/{batches.EVENT}",
    "/partitions",
    "/partitions/targets",
    "/sources",
    "/alerts",
    "/activity",
    "/keys",
    "/system",
)


class Cost(NamedTuple):
    """Milliseconds."""

    p50: float
    most: float

    @classmethod
    def of(cls, took: Sequence[float]) -> "Cost":
        return cls(statistics.median(took), max(took))


Costs = dict[str, Cost]


@contextmanager
def empty_store(kind: str) -> Iterator[str]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder:
            yield f"sqlite:///{folder}/store.db"
    else:
        with PostgresServer() as server:
            yield server.create_database()


async def filled(url: str, stored: int) -> dict[str, str]:
    """Fill the store; the names of things in it."""
    store = wiring.make_engine(url)
    assert isinstance(store, FullStore)
    await store.open()
    # Its tasks are placed before this moment, which for other users is that of a test clock.
    full_store.NOW = store.clock.now()
    await full_store.fill(store, stored)
    await furnish(store, IdMaker(store.clock.now, wiring.randbits()))
    failed = await store.find(parsed("state:failed fingerprint:late"), limit=1)
    await store.close()
    return {"task": failed.tasks[0].id, "batch": full_store.BATCH}


async def feed(store: Store, number: int) -> None:
    make_id = IdMaker(store.clock.now, wiring.randbits())
    for start in range(0, number, 1000):
        await store.put(
            [NewTask(id=make_id(), handler="noop", queue="drain", params=f'{{"n":{start + n}}}') for n in range(1000)]
        )


async def read(port: int, names: dict[str, str], rounds: int) -> Costs:
    """Of each page. One that is not there is told and left out."""
    found: dict[str, list[float]] = {}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/ui", timeout=60) as client:
        for number in range(rounds + 1):
            for path in PATHS:
                await asyncio.sleep(SHARED_SECONDS)
                began = time.perf_counter()
                answer = await client.get(path.format(**names))
                took = 1000 * (time.perf_counter() - began)
                if answer.status_code == httpx.codes.OK and number:
                    found.setdefault(path, []).append(took)
                elif answer.status_code != httpx.codes.OK and not number:
                    print(f"{path}: HTTP {answer.status_code}", file=sys.stderr, flush=True)
    return {path: Cost.of(took) for path, took in found.items()}


def serve(url: str, port: int, folder: str) -> AbstractAsyncContextManager[subprocess.Popen[bytes]]:
    arguments = [*PITBOSS, "serve", "--store", url, "--port", str(port), "--quiet"]
    return process(*arguments, port=port, env={"PITBOSS_LOGS": f"{folder}/logs"})


async def on_idle(url: str, names: dict[str, str], rounds: int) -> Costs:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder:
        async with serve(url, port, folder):
            return await read(port, names, rounds)


async def under_load(url: str, names: dict[str, str], rounds: int) -> Costs:
    """While a manager runs tasks, which are put as they run out."""
    port, store, over = free_port(), wiring.make_engine(url), asyncio.Event()
    await store.open()

    async def keep_fed() -> None:
        while not over.is_set():
            waiting = sum(one.waiting for one in await store.queues() if one.name == "drain")
            if waiting < FED // 2:
                await feed(store, FED)
            await asyncio.sleep(0.2)

    with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder:
        (Path(folder) / "app.py").write_text(APP)
        up = [*PITBOSS, "up", f"{folder}/app.py", "--store", url, "--workers", "2", "--no-http"]
        manager = started(*up, env={"PITBOSS_LOGS": f"{folder}/logs", **KEPT})
        feeding = asyncio.create_task(keep_fed())
        try:
            async with serve(url, port, folder):
                await asyncio.sleep(5)
                began, before = time.perf_counter(), await completed(store)
                found = await read(port, names, rounds)
                speed = (await completed(store) - before) / (time.perf_counter() - began)
        finally:
            over.set()
            await feeding
            manager.terminate()
            await asyncio.to_thread(manager.wait, 60)
            await store.close()
    print(f"meanwhile {speed:,.0f} tasks per second were run", flush=True)
    assert speed > 0, "nothing was run"
    return found


async def completed(store: Store) -> int:
    return sum(one.counts.get(state, 0) for one in await store.queues() for state in one.counts if state == "completed")


def report(kind: str, few: Costs, idle: Costs, loaded: Costs) -> bool:
    """Print the table; whether everything is within the bars."""
    print(f"\n| {kind} | {FEW:,}: p50 | most | {MANY:,}: p50 | most | under load: p50 | most |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    wrong = []
    for path, one in idle.items():
        # The app that runs meanwhile does not divide a queue, so the page of its keys is not there.
        busy = loaded.get(path, ())
        figures = (*few[path], *one, *busy)
        print(f"| /ui{path} | " + " | ".join(f"{value:.0f}" for value in figures) + " |")
        if one.most > IDLE_MS:
            wrong.append(f"/ui{path} {one.most:.0f} ms idle")
        if busy and loaded[path].most > LOADED_MS:
            wrong.append(f"/ui{path} {loaded[path].most:.0f} ms under load")
        if one.p50 > NOISE_MS and one.p50 > 2 * few[path].p50:
            wrong.append(f"/ui{path} grew from {few[path].p50:.0f} to {one.p50:.0f} ms")
    print(f"\n{kind}: " + ("; ".join(wrong) if wrong else "every page is within the bars"), flush=True)
    return not wrong


async def compared(kind: str, rounds: int) -> bool:
    with empty_store(kind) as url:
        few = await on_idle(url, await filled(url, FEW), rounds)
    with empty_store(kind) as url:
        names = await filled(url, MANY)
        return report(kind, few, await on_idle(url, names, rounds), await under_load(url, names, rounds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=ENGINES, action="append")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    right = [asyncio.run(compared(kind, given.rounds)) for kind in given.store or ENGINES]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
