"""What open pages cost: twelve streams of updates while tasks run.

    python -m benchmarks.streams soak [--minutes 10]    the web process's memory, and the size of SQLite's log
    python -m benchmarks.streams pairs [--pairs 10]     processor time per task of manager and workers, with and without

Each stream is followed by what a page does: when something changed, the overview is read again, at most every two
seconds. It ends with exit code 1 if the web process needs more than 150 MB, the log more than 24 MiB, or if tasks cost
3 % more.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from benchmarks.http_load import PITBOSS, free_port, process
from benchmarks.page_costs import APP, KEPT, completed, feed
from benchmarks.procfs import family, precise_cpu_seconds
from benchmarks.stores import ENGINES
from pitboss import wiring
from pitboss.engines.protocol import Store
from tests.servers.postgres import PostgresServer

STREAMS = 12
MOST_MEMORY, MOST_LOG, MOST_MORE = 150_000_000, 24 * 1024**2, 3.0
TASKS, ROUND = 40_000, 20_000
PAUSE_SECONDS = 2.0


class Running(NamedTuple):
    """A manager with its web process, and its store."""

    port: int
    manager: int
    web: int
    store: Store

    def work_seconds(self) -> float:
        """Processor time of everything but the web process."""
        return precise_cpu_seconds([self.manager]) - precise_cpu_seconds([self.web])


@asynccontextmanager
async def managed(url: str, folder: str) -> AsyncIterator[Running]:
    port, store = free_port(), wiring.make_engine(url)
    (Path(folder) / "app.py").write_text(APP)
    up = [*PITBOSS, "up", f"{folder}/app.py", "--store", url, "--workers", "2", "--port", str(port), "--quiet"]
    async with process(*up, port=port, env={"PITBOSS_LOGS": f"{folder}/logs", **KEPT}) as manager:
        await store.open()
        (web,) = {
            one.pid
            for one in psutil.net_connections("tcp")
            if one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN and one.pid
        } & family([manager.pid])
        await asyncio.sleep(3)
        yield Running(port, manager.pid, web, store)
        await store.close()


class Viewers:
    """Open pages. `changes` are the messages that they got, `pages` how often they were read again."""

    def __init__(self, port: int, number: int) -> None:
        self._url, self._number = f"http://127.0.0.1:{port}/ui", number
        self.changes = self.pages = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Viewers":
        self._tasks = [asyncio.create_task(self._view()) for _ in range(self._number)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        found = await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in found:
            assert isinstance(one, asyncio.CancelledError), f"a stream broke: {one!r}"

    async def _view(self) -> None:
        read_at = 0.0
        async with httpx.AsyncClient(timeout=60) as client, client.stream("GET", f"{self._url}/live") as stream:
            async for line in stream.aiter_lines():
                if line != "event: changed":
                    continue
                self.changes += 1
                if time.monotonic() - read_at > PAUSE_SECONDS:
                    (await client.get(self._url)).raise_for_status()
                    self.pages, read_at = self.pages + 1, time.monotonic()
        raise AssertionError("the stream ended")


def size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


async def soak(url: str, folder: str, minutes: float) -> bool:
    async with managed(url, folder) as running, Viewers(running.port, STREAMS) as viewers:
        web, log = psutil.Process(running.web), Path(f"{folder}/store.db-wal")
        end, before, began = time.monotonic() + 60 * minutes, await completed(running.store), time.monotonic()
        most_memory = most_log = 0
        while time.monotonic() < end:
            if sum(one.waiting for one in await running.store.queues() if one.name == "drain") < ROUND:
                await feed(running.store, ROUND)
            most_memory = max(most_memory, web.memory_info().rss)
            most_log = max(most_log, size_of(log))
            await asyncio.sleep(0.25)
        speed = (await completed(running.store) - before) / (time.monotonic() - began)
    print(
        f"{url.partition(':')[0]}: {STREAMS} streams for {minutes:g} min while {speed:,.0f} tasks/s ran: "
        f"{viewers.changes:,} changes told, {viewers.pages:,} pages read again; web process at most "
        f"{most_memory / 1e6:.0f} MB, SQLite's log at most {most_log / 1024**2:.1f} MiB",
        flush=True,
    )
    assert viewers.pages > STREAMS * minutes, "the pages were not kept up to date"
    return most_memory <= MOST_MEMORY and most_log <= MOST_LOG


async def cost(url: str, folder: str, streams: int) -> float:
    """Microseconds of processor time per task."""
    async with managed(url, folder) as running, Viewers(running.port, streams):
        before, began = await completed(running.store), running.work_seconds()
        await feed(running.store, TASKS)
        end = time.monotonic() + 300
        while await completed(running.store) - before < TASKS:
            assert time.monotonic() < end, "the tasks did not end"
            await asyncio.sleep(0.1)
        return 1e6 * (running.work_seconds() - began) / TASKS


async def pairs(kind: str, server: PostgresServer | None, number: int) -> bool:
    found: list[tuple[float, float]] = []
    for turn in range(number):
        costs = {}
        # Which one comes first alternates too.
        for streams in (STREAMS, 0) if turn % 2 else (0, STREAMS):
            with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder:
                url = f"sqlite:///{folder}/store.db" if server is None else server.create_database()
                costs[streams] = await cost(url, folder, streams)
        found.append((costs[0], costs[STREAMS]))
        print(f"{turn + 1}: {costs[0]:.1f} → {costs[STREAMS]:.1f} µs", flush=True)
    more = [100 * (one / without - 1) for without, one in found]
    total = 100 * (sum(one for _, one in found) / sum(one for one, _ in found) - 1)
    print(
        f"{kind}: {statistics.median(one for one, _ in found):.1f} µs per task without streams; with {STREAMS} "
        f"{statistics.median(more):+.1f} % (median of {number} pairs; all together {total:+.1f} %)",
        flush=True,
    )
    return min(statistics.median(more), total) <= MOST_MORE


async def run(what: str, kind: str, minutes: float, number: int) -> bool:
    if kind == "postgres":
        with PostgresServer() as server, tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder:
            if what == "soak":
                return await soak(server.create_database(), folder, minutes)
            return await pairs(kind, server, number)
    with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder:
        if what == "soak":
            return await soak(f"sqlite:///{folder}/store.db", folder, minutes)
        return await pairs(kind, None, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["soak", "pairs"])
    parser.add_argument("--store", choices=ENGINES, default="sqlite")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pairs", type=int, default=10)
    given = parser.parse_args()
    return 0 if asyncio.run(run(given.what, given.store, given.minutes, given.pairs)) else 1


if __name__ == "__main__":
    sys.exit(main())
