"""Measures one phase of one system, in that system's own environment, and prints the figures as one line of JSON.

`python -m benchmarks.station '{"module": …}'`, started by `benchmarks.compare`. This process is the producer.
Standard library only.
"""

import contextlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.peers.base import Peer
from benchmarks.procfs import Load, cpu_seconds, family, precise_cpu_seconds, pss_mb
from benchmarks.tally import VARIABLE, Tally

Figures = dict[str, Any]
_WARM = 100
# Seconds between reads of the tally. The recorded times are exact anyway; reading more often would slow the workers.
_GLANCE = 0.01
_STALL_SECONDS = 30.0
_SETTLE_SECONDS = 20.0
_STOP_SECONDS = 15.0


class Stalled(Exception):
    """No task has run for a long time."""


class Station:
    """The system, its processes, and their cost."""

    def __init__(self, order: Figures) -> None:
        self.sizes: dict[str, int] = order["sizes"]
        self._driver, self._broker = order["driver"], order["broker"]
        self._log = Path(order["folder"]) / "workers.log"
        path = Path(os.environ[VARIABLE])
        self.room = max(self.sizes.values()) * 3
        self.tally = Tally.create(path, self.room + _WARM)
        self.peer: Peer = importlib.import_module(order["module"]).make()
        self._processes: list[subprocess.Popen[bytes]] = []

    @contextlib.contextmanager
    def measured(self, figures: Figures) -> Iterator[None]:
        """Adds to the figures: seconds, processor time by part, and cores that other processes used meanwhile."""
        load, cpu = Load.now(self._driver), self.cpu()
        began, own = time.monotonic(), time.process_time()
        yield
        figures["seconds"], own = time.monotonic() - began, time.process_time() - own
        figures["cpu"] = {"producer": own, **self.cpu_since(cpu)}
        figures["foreign"] = Load.now(self._driver).foreign_since(load)

    def cpu(self) -> dict[str, float]:
        """Seconds of processor time so far: the workers' process trees, the broker or database server."""
        return {"workers": cpu_seconds(self._roots()), "broker": cpu_seconds(self._broker)}

    def precise_cpu(self) -> dict[str, float]:
        return {"workers": precise_cpu_seconds(self._roots()), "broker": precise_cpu_seconds(self._broker)}

    def cpu_since(self, before: dict[str, float]) -> dict[str, float]:
        return {part: now - before[part] for part, now in self.cpu().items()}

    def memory(self) -> Figures:
        """PSS of the processes that run tasks, and of their managers."""
        everyone = family(self._roots())
        workers = everyone & set(self.tally.workers())
        managers = everyone - workers
        return {
            "pss_workers": pss_mb(workers),
            "pss_manager": pss_mb(managers),
            "worker_processes": len(workers),
            "manager_processes": len(managers),
        }

    def start(self) -> None:
        with self._log.open("ab") as log:
            for command in self.peer.workers():
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
                self._processes.append(process)

    def warm(self) -> None:
        """Start the workers, and return when they have run a task."""
        self.start()
        self.peer.best(self.room, _WARM)
        self.wait(self.room, _WARM)
        self.settled()
        time.sleep(0.5)

    def wait(self, first: int, count: int, *, until: int | None = None, pause: float = _GLANCE) -> None:
        """Return when this many (by default all) of these tasks have run."""
        wanted = count if until is None else until
        seen, moved = -1, time.monotonic()
        while (done := self.tally.done(first, count)) < wanted:
            if done != seen:
                seen, moved = done, time.monotonic()
            elif time.monotonic() - moved > _STALL_SECONDS:
                raise Stalled(f"{done} of {count} tasks have run, and no more for {_STALL_SECONDS:g} s")
            elif all(process.poll() is not None for process in self._processes):
                raise Stalled(f"the workers have ended after {done} of {count} tasks")
            time.sleep(pause)

    def settled(self) -> float | None:
        """Wait until all tasks are done in the store; returns the time, or None if it never happens."""
        limit = time.monotonic() + _SETTLE_SECONDS
        while self.peer.left():
            if time.monotonic() > limit:
                return None
            time.sleep(0.02)
        return time.monotonic()

    def signal(self, number: int) -> None:
        """To all processes of the system."""
        for pid in family(self._roots()):
            os.kill(pid, number)

    def stop(self) -> None:
        """Stop the workers, and kill those that do not end in time."""
        everyone = family(self._roots())
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in self._processes:
                process.wait(_STOP_SECONDS)
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def _roots(self) -> list[int]:
        return [process.pid for process in self._processes]

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""


def enqueue(station: Station) -> Figures:
    """Enqueue without workers: one task after the other, then many per call, or in another best way."""
    ways: dict[str, tuple[int, Callable[[int, int], None]]] = {"one": (station.sizes["one"], station.peer.one)}
    for size in station.peer.sizes:
        count = max(size, station.sizes["many"])
        ways[str(size)] = (count, partial(station.peer.many, size=size))
    if type(station.peer).best is not Peer.best:
        ways["best"] = (station.sizes["many"], station.peer.best)
    sections: Figures = {}
    for name, (count, put) in ways.items():
        put(0, min(count, _WARM))  # connect and prepare statements before the measurement
        figures: Figures = {"count": count}
        sections[name] = figures
        with station.measured(figures):
            put(0, count)
        figures["rate"] = count / figures["seconds"]
    return sections


def drain(station: Station) -> Figures:
    """Enqueue a backlog, then start the workers."""
    count = station.sizes["drain"]
    station.peer.best(0, count)
    figures: Figures = {"count": count}
    with station.measured(figures):
        began = time.monotonic()
        station.start()
        station.wait(0, count, until=count // 10)
        cpu, already = station.cpu(), station.tally.done(0, count)
        station.wait(0, count)
        settled = station.settled()
        spent = station.cpu_since(cpu)
        figures |= station.memory()
    first, last = (moment / 1e9 for moment in station.tally.span(0, count))
    figures["rate"] = count / (last - first)
    figures["start_seconds"] = first - began
    figures["rate_with_start"] = count / (last - began)
    figures["settle_seconds"] = None if settled is None else max(0.0, settled - last)
    figures["cpu_per_task"] = {part: spent[part] / (count - already) * 1e6 for part in ("workers", "broker")}
    return {"drain": figures | _honesty(station, count)}


def end_to_end(station: Station) -> Figures:
    """With waiting workers, from the first call of the producer to the last task."""
    count = station.sizes["e2e"]
    station.warm()
    figures: Figures = {"count": count}
    with station.measured(figures):
        began = time.monotonic()
        station.peer.best(0, count)
        figures["enqueue_rate"] = count / (time.monotonic() - began)
        station.wait(0, count)
    figures["rate"] = count / (station.tally.span(0, count)[1] / 1e9 - began)
    station.settled()
    return {"e2e": figures | _honesty(station, count)}


def idle(station: Station) -> Figures:
    """Idle workers: their cost, and how soon a single task starts."""
    station.warm()
    time.sleep(1.5)
    resting: Figures = {}
    with station.measured(resting):
        before, seconds = station.precise_cpu(), station.sizes["idle_seconds"]
        time.sleep(seconds)
        for part, after in station.precise_cpu().items():
            resting[f"{part}_percent"] = (after - before[part]) / seconds * 100
    pickup: Figures = {"count": station.sizes["samples"]}
    with station.measured(pickup):
        waits = sorted(_pickups(station, station.sizes["samples"]))
    pickup["p50_ms"] = waits[len(waits) // 2]
    pickup["p99_ms"] = waits[min(len(waits) - 1, len(waits) * 99 // 100)]
    pickup |= _honesty(station, len(waits))
    return {"idle": resting, "pickup": pickup}


def _pickups(station: Station, count: int) -> Iterator[float]:
    pauses = random.Random(count)  # uneven, so that no polling interval keeps step with them
    for n in range(count):
        time.sleep(pauses.uniform(0.02, 0.12))
        asked = time.monotonic_ns()
        station.peer.one(n, 1)
        station.wait(n, 1, pause=0.001)
        yield (station.tally.times[n] - asked) / 1e6


def _honesty(station: Station, count: int) -> Figures:
    return {"lost": count - station.tally.done(0, count), "twice": station.tally.twice(0, count)}


def backlog(station: Station) -> Figures:
    """Messages wait in a broker while all processes of the system are stopped; from the moment when they go on."""
    count = station.sizes["backlog"]
    station.warm()
    figures: Figures = {"count": count}
    with station.measured(figures):
        began = _filled(station, count)
        cpu = station.cpu()
        station.wait(0, count)
        settled = station.settled()
        spent = station.cpu_since(cpu)
        figures |= station.memory()
    if settled is None:
        raise Stalled("the tasks ran, and are not settled")
    # Whichever is later: the look at the store itself takes some milliseconds.
    figures["rate"] = count / (max(settled, station.tally.span(0, count)[1] / 1e9) - began)
    figures["rate_run"] = count / (station.tally.span(0, count)[1] / 1e9 - began)
    figures["cpu_per_task"] = {part: seconds / count * 1e6 for part, seconds in spent.items()}
    return {"backlog": figures | _honesty(station, count)}


def store(station: Station) -> Figures:
    """As `backlog`, until every message is stored as a task and acknowledged; no task runs."""
    count = station.sizes["backlog"]
    station.warm()
    station.peer.hold()
    before = station.peer.stored()
    figures: Figures = {"count": count}
    with station.measured(figures):
        began = _filled(station, count)
        limit = began + _STALL_SECONDS
        while station.peer.stored() - before < count:
            if time.monotonic() > limit:
                raise Stalled(f"{station.peer.stored() - before} of {count} messages were stored")
            time.sleep(_GLANCE)
        figures["rate"] = count / (time.monotonic() - began)
    return {"store": figures}


def _filled(station: Station, count: int) -> float:
    """Fill the broker's queue; returns when the system went on."""
    station.signal(signal.SIGSTOP)
    try:
        station.peer.best(0, count)
    finally:
        began = time.monotonic()
        station.signal(signal.SIGCONT)
    return began


def publish(station: Station) -> Figures:
    """Messages to a broker, until all are confirmed, in each way that the system has."""
    if station.sizes["workers"]:
        station.warm()
    sections: Figures = {}
    for name, put in station.peer.publishers().items():
        count = station.sizes["publish"] // (10 if name in station.peer.slow_publishers else 1)
        put(0, _WARM)
        figures = sections[name] = {"count": count}
        with station.measured(figures):
            put(0, count)
        figures["rate"] = count / figures["seconds"]
    return sections


PHASES: dict[str, Callable[[Station], Figures]] = {
    "enqueue": enqueue,
    "drain": drain,
    "e2e": end_to_end,
    "idle": idle,
    "backlog": backlog,
    "store": store,
    "publish": publish,
}


def run(order: Figures) -> Figures:
    station = Station(order)
    answer: Figures = {"versions": {name: metadata.version(name) for name in station.peer.packages}}
    try:
        station.peer.prepare()
        answer["sections"] = PHASES[order["phase"]](station)
    except Stalled as error:
        answer["stalled"] = f"{station.log_tail()}\n{error}"
    finally:
        station.stop()
        station.peer.close()
    return answer


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
