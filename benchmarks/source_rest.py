"""What a delivery process costs at rest: memory beside a million waiting messages, processor time while it is idle."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.compare import say
from benchmarks.peers.base import TEXT
from benchmarks.peers.rabbitmq import BROKER, PlainProducer
from benchmarks.procfs import precise_cpu_seconds
from benchmarks.source_app import CAPACITY, QUEUE
from pitboss.manager.delivery import MODULE
from pitboss.model.queue import QueueChange
from pitboss.model.source import DeliverySpec, SourceSpec, SourceState
from pitboss.model.source_findings import live_sources
from tests.manager.cluster import Cluster, ManagerProcess
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer

APP = str(Path(__file__).with_name("source_app.py"))
QUEUE_IN, SOURCE = "bench_in", "bench"
STATES = (SourceState.RUNNING, SourceState.STANDBY, SourceState.FULL, SourceState.AWAY)
_LOOK = 0.2
_START_SECONDS = 60.0


class Stage:
    """A store, a broker's queue, and managers with a source."""

    def __init__(self, store: str, folder: Path, broker: RabbitServer) -> None:
        self.cluster = Cluster(store, folder, APP)
        url = broker.url()
        spec = SourceSpec(
            name=SOURCE, url=url, queue=QUEUE_IN, handler="noop", dead_letter_queue=f"{QUEUE_IN}_dlq", create="classic"
        )
        self.cluster.delivery = DeliverySpec(store=store, sources=(spec,))

    def manager(self, state: SourceState, elsewhere: str | None = None) -> ManagerProcess:
        """Start one, and wait until its source is in this state."""
        manager = self.cluster.manager(workers=2, concurrency=8, elsewhere=elsewhere)
        self.until(state)
        return manager

    def until(self, state: SourceState) -> None:
        self.cluster.until(lambda: state in self._states(), within=_START_SECONDS, what=f"state {state}")

    def _states(self) -> set[SourceState]:
        engine = self.cluster.engine
        sessions = self.cluster.do(engine.sessions())
        return {one.state for _, figures in live_sources(sessions, engine.clock.now()) for one in figures}

    def change(self, change: QueueChange) -> None:
        self.cluster.do(self.cluster.engine.change_queue(QUEUE, change))


def delivery_process(manager: ManagerProcess) -> psutil.Process:
    children = psutil.Process(manager.process.pid).children()
    return next(one for one in children if MODULE in " ".join(one.cmdline()))


@contextmanager
def stage(kind: str, broker: RabbitServer) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as name, _store(kind, name) as url:
        found = Stage(url, Path(name), broker)
        try:
            yield found
        finally:
            found.cluster.close()


@contextmanager
def _store(kind: str, folder: str) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/bench.db"
    else:
        with PostgresServer() as server:
            yield server.create_database()


def memory(kinds: list[str], messages: int, seconds: float) -> dict[str, dict[str, float]]:
    """The most resident memory of the delivery process, in MB: while the queue is full, and while it makes room."""
    found: dict[str, dict[str, float]] = {}
    with RabbitServer() as broker:
        _fill(broker, messages)
        for kind in kinds:
            with stage(kind, broker) as there:
                there.change(QueueChange(paused=True))
                process = delivery_process(there.manager(SourceState.FULL))
                full = _most(process, seconds)
                there.change(QueueChange(paused=False))
                found[kind] = {"full": full, "full and running": _most(process, seconds), "peak": _peak(process)}
            say(f"  memory   {kind:20} {', '.join(f'{name} {size:.1f} MB' for name, size in found[kind].items())}")
    return found


def _fill(broker: RabbitServer, messages: int) -> None:
    os.environ[BROKER] = broker.url()
    producer = PlainProducer()
    producer.declare(QUEUE_IN)
    bodies = ((json.dumps({"n": n, "text": TEXT}).encode(), None) for n in range(messages))
    producer.fill(QUEUE_IN, bodies)
    say(f"  {producer.count(QUEUE_IN):,} messages wait; capacity {CAPACITY:,}")
    producer.close()


def _most(process: psutil.Process, seconds: float) -> float:
    most, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        most = max(most, process.memory_info().rss)
        time.sleep(_LOOK)
    return most / 2**20


def _peak(process: psutil.Process) -> float:
    """The kernel's own mark, since the start of the process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def idle(kinds: list[str], seconds: float) -> dict[str, dict[str, float]]:
    """Percent of a core that a delivery process takes in each state."""
    found: dict[str, dict[str, float]] = {}
    for kind in kinds:
        with RabbitServer() as broker, stage(kind, broker) as there:
            first = there.manager(SourceState.RUNNING)
            found[kind] = {SourceState.RUNNING: _percent(first, seconds)}
            second = there.manager(SourceState.STANDBY, elsewhere="another")
            found[kind][SourceState.STANDBY] = _percent(second, seconds)
            second.end()
            there.change(QueueChange(paused=True, capacity=1))
            _fill(broker, 3)
            there.until(SourceState.FULL)
            found[kind][SourceState.FULL] = _percent(first, seconds)
            broker.kill9()
            there.change(QueueChange(paused=False, capacity=CAPACITY))
            there.until(SourceState.AWAY)
            found[kind][SourceState.AWAY] = _percent(first, seconds)
            broker.start()
        say(f"  idle     {kind:20} {', '.join(f'{state} {share:.2f} %' for state, share in found[kind].items())}")
    return found


def _percent(manager: ManagerProcess, seconds: float) -> float:
    """Of the delivery process, and of those that it replaced meanwhile."""
    time.sleep(2)
    before, began = _spent(manager), time.monotonic()
    time.sleep(seconds)
    return (_spent(manager) - before) / (time.monotonic() - began) * 100


def _spent(manager: ManagerProcess) -> float:
    """Seconds of processor time of the present delivery process, and of all processes that have ended."""
    ended = psutil.Process(manager.process.pid).cpu_times()
    own = _retried(lambda: precise_cpu_seconds([delivery_process(manager).pid]))
    return own + ended.children_user + ended.children_system


def _retried(look: Callable[[], float]) -> float:
    """One process may just be replaced by another."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return look()
        except (StopIteration, psutil.Error):
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK)
