"""The cost of the manager, and of a bad pool for its neighbour: `python -m benchmarks.manager_load [part …]`.

`idle`: the manager with 2 and with 50 idle workers. `slope`: its memory over 200,000 tasks. `neighbour`: a pool that
uses half a core, alone and next to a pool whose tasks leak memory and crash, in turn.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil

from pitboss import wiring
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo
from pitboss.model.task import NewTask

T = TypeVar("T")
APP = """
import time
from pitboss import App

app = App()
kept = []

@app.task(queue="quick")
async def quick() -> None:
    pass

@app.task(queue="paced")
def paced() -> None:
    # Half a core: it works as long as it sleeps.
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass
    time.sleep(0.005)

@app.task(queue="trouble")
def leak() -> None:
    kept.append(bytearray(4 * 1024 * 1024))

@app.task(queue="trouble")
def bomb() -> None:
    while True:
        kept.append(bytearray(8 * 1024 * 1024))
        time.sleep(0.005)
"""
TOML = """
store = "sqlite:///bench.db"
"""
POOLS = """
[pools.paced]
queues = ["paced", "quick"]
workers = 1
concurrency = 1

[pools.trouble]
queues = ["trouble"]
workers = 1
concurrency = 1
memory = "200MB"
restart_delay = "1s"
max_restarts = 10000
"""
WINDOW = 12.0
ROUNDS = 4


class Bench:
    """A store with a manager, and readings of both."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runner = asyncio.Runner()
        self.engine = wiring.make_engine(f"sqlite:///{folder}/bench.db")
        self.do(self.engine.open())
        names = {"quick": "quick", "paced": "paced", "leak": "trouble", "bomb": "trouble"}
        self._queues = names
        self.do(self.engine.register([HandlerInfo(name=name, queue=queue) for name, queue in names.items()]))
        self._new_id = IdMaker(wiring.SystemClock().now, wiring.randbits())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def put(self, handler: str, count: int) -> None:
        for _ in range(0, count, 10_000):
            size = min(10_000, count)
            tasks = [NewTask(id=self._new_id(), handler=handler, queue=self._queues[handler]) for _ in range(size)]
            self.do(self.engine.put(tasks))

    def ended(self, queue: str) -> int:
        return int(self.do(self.engine.count(by(queue=queue, state=["completed", "failed", "cancelled"]))).number)

    def quiet(self, queue: str) -> bool:
        unfinished = ["pending", "scheduled", "running", "held"]
        return bool(self.do(self.engine.count(by(queue=queue, state=unfinished))).number == 0)

    @contextmanager
    def manager(self, *options: str) -> Iterator[psutil.Process]:
        command = [str(Path(sys.executable).with_name("pitboss")), "up", "app.py", "--quiet", *options]
        log = (self._folder / "up.log").open("w")
        process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            log.close()

    def has(self, workers: int) -> bool:
        return self.ready() >= workers

    def has_ended(self, queue: str, count: int) -> bool:
        return self.ended(queue) >= count

    def ready(self) -> int:
        return (self._folder / "up.log").read_text().count("is ready")

    def said(self) -> str:
        return (self._folder / "up.log").read_text()

    def close(self) -> None:
        self.do(self.engine.close())
        self._runner.close()


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError("it takes too long")
        time.sleep(0.1)


def cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def idle(bench: Bench) -> None:
    for count in (2, 50):
        with bench.manager("--workers", str(count)) as manager:
            until(partial(bench.has, count))
            time.sleep(4)
            workers = manager.children()
            before, at = (cpu([manager]), cpu(workers)), time.monotonic()
            time.sleep(20)
            took = time.monotonic() - at
            own, theirs = (cpu([manager]) - before[0]) / took, (cpu(workers) - before[1]) / took
            memory = manager.memory_full_info()
            each = statistics.mean(one.memory_full_info().pss for one in workers) / 2**20
            print(
                f"idle, {count} workers: manager {own:.2%} of a core, {memory.pss / 2**20:.0f} MB PSS;"
                f" workers {theirs:.2%} together, {each:.0f} MB each",
                flush=True,
            )


def slope(bench: Bench) -> None:
    with bench.manager("--workers", "2") as manager:
        until(lambda: bench.ready() >= 2)
        figures = []
        for total in range(20_000, 220_001, 20_000):
            bench.put("quick", 20_000)
            until(partial(bench.has_ended, "quick", total))
            workers = [one for one in manager.children() if "worker" in " ".join(one.cmdline())]
            figures.append((total, manager.memory_info().rss, statistics.mean(w.memory_info().rss for w in workers)))
        for total, own, theirs in figures:
            print(f"slope: after {total:>7,} tasks manager {own / 2**20:.1f} MB, worker {theirs / 2**20:.1f} MB")
        first, last = figures[1], figures[-1]
        grown = [(last[place] - first[place]) / (last[0] - first[0]) for place in (1, 2)]
        print(f"slope over 200,000 tasks: manager {grown[0]:.1f}, worker {grown[1]:.1f} bytes per task", flush=True)


def neighbour(bench: Bench) -> None:
    (bench._folder / "pitboss.toml").write_text(TOML + POOLS)
    with bench.manager():
        until(lambda: bench.ready() >= 2)
        bench.put("paced", 40_000)
        until(lambda: bench.ended("paced") > 100)
        alone, beside = [], []
        for _ in range(ROUNDS):
            alone.append(_rate(bench))
            bench.put("bomb", 3)
            bench.put("leak", 200)
            beside.append(_rate(bench))
            bench.do(bench.engine.cancel(by(queue="trouble"), limit=10_000))
            until(lambda: bench.quiet("trouble"))
        one, other = statistics.median(alone), statistics.median(beside)
        kills = bench.said().count("more than its limit")
        recycled = bench.said().count("it is replaced after its tasks")
        print(
            f"neighbour: {one:.1f} tasks/s by itself, {other:.1f} beside trouble: {other / one:.0%};"
            f" {kills} killed at the hard limit, {recycled} recycled at the soft one",
            flush=True,
        )


def _rate(bench: Bench) -> float:
    before, at = bench.ended("paced"), time.monotonic()
    time.sleep(WINDOW)
    return (bench.ended("paced") - before) / (time.monotonic() - at)


PARTS = {"idle": idle, "slope": slope, "neighbour": neighbour}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory(prefix="pitboss-load-") as place:
            folder = Path(place)
            (folder / "app.py").write_text(APP)
            (folder / "pitboss.toml").write_text(TOML)
            os.environ.pop("PITBOSS_STORE", None)
            bench = Bench(folder)
            try:
                PARTS[name](bench)
            except TimeoutError:
                print(bench.said()[-3000:])
                raise
            finally:
                bench.close()


if __name__ == "__main__":
    main()
