"""A store with managers as real processes, and ways to observe them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil

from pitboss import wiring
from pitboss.config import ServerSpec
from pitboss.engines.protocol import FullStore
from pitboss.manager.manager import Plan
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.canonical import to_json
from pitboss.model.desired_state import DesiredPool, pool_key
from pitboss.model.duration import SECOND, Span, span
from pitboss.model.filter import EVERYTHING
from pitboss.model.happening import Happening, Kind
from pitboss.model.ids import IdMaker
from pitboss.model.log_settings import LogSettings
from pitboss.model.pool import PoolSpec
from pitboss.model.snapshot import Snapshot, WorkerFigures, read
from pitboss.model.source import DeliverySpec
from pitboss.model.states import State
from pitboss.model.task import Attempt, NewTask, Task
from pitboss.worker.describe import described

TARGET = str(Path(__file__).with_name("shop.py"))
TROUBLE = str(Path(__file__).with_name("trouble.py"))


def pool(name: str = "default", *, workers: int = 2, **settings: Any) -> PoolSpec:
    """A pool that restarts dead workers quickly: tests cannot wait five seconds."""
    usual = {"min_workers": workers, "max_workers": workers, "restart_delay": SECOND // 5, "max_restarts": 50}
    return PoolSpec(name=name, **{**usual, **settings})


class ManagerProcess:
    """One manager with its workers; `lines` is what it prints."""

    def __init__(
        self, url: str, traces: Path, plan: Plan, file: Path, *elsewhere: str, environment: Mapping[str, str]
    ) -> None:
        self._file = file
        self.plan = plan
        file.write_bytes(msgspec.json.encode(plan))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.manager.serve", url, str(file), *elsewhere],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment, "TRACES": str(traces)},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip() for line in iter(self.process.stdout.readline, ""))

    def workers(self) -> list[psutil.Process]:
        """Its live worker processes."""
        try:
            children = psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if "pitboss.worker.main" in " ".join(_command(child))]

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def reload(self, plan: Plan) -> None:
        """Make it read another plan, and the code again."""
        self._file.write_bytes(msgspec.json.encode(plan))
        self.signal(signal.SIGHUP)

    def end(self) -> int:
        """Stop it; returns its exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        finally:
            self.close()

    def close(self) -> None:
        """Kill it if it still runs, and close its output."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self._reader.join(timeout=5)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Cluster:
    """Puts tasks, starts managers, waits, and reads the ledger."""

    def __init__(self, url: str, folder: Path, target: str = TARGET) -> None:
        self.url, self.traces, self.target = url, folder / "traces", target
        self.managers: list[ManagerProcess] = []
        self.secrets_file: str | None = None
        self.logs: LogSettings | None = None
        self.http: ServerSpec | None = None
        self.delivery: DeliverySpec | None = None
        self.alerts: AlertsSpec | None = None
        # Of the managers and their workers.
        self.environment: dict[str, str] = {}
        self.new_id = IdMaker(wiring.SystemClock().now, wiring.randbits())
        self._runner = asyncio.Runner()
        self.engine = wiring.make_engine(url)
        self.do(self.engine.open())
        os.environ.setdefault("TRACES", str(self.traces))
        self.do(self.engine.register(described(target).handlers))

    def do(self, work: Any) -> Any:
        return self._runner.run(work)

    def put(
        self, handler: str, count: int = 1, queue: str = "default", delay: Span | None = None, **params: Any
    ) -> list[str]:
        text = to_json(params)
        tasks = [
            NewTask(id=self.new_id(), handler=handler, params=text, queue=queue, delay=delay) for _ in range(count)
        ]
        return [placed.id for placed in self.do(self.engine.put(tasks))]

    def manager(
        self,
        *pools: PoolSpec,
        workers: int = 2,
        concurrency: int = 8,
        ttl: str = "15s",
        target: str | None = None,
        drain_seconds: float = 20,
        elsewhere: str | None = None,
    ) -> ManagerProcess:
        """Start one with these pools, or with one pool of `workers`; `elsewhere` names another host to pretend."""
        plan = Plan(
            target=target or self.target,
            pools=pools or (pool(workers=workers, concurrency=concurrency),),
            ttl=span(ttl),
            drain_seconds=drain_seconds,
            resources=tuple((one.name, one.rules) for one in described(target or self.target).resources),
            secrets_file=self.secrets_file,
            logs=self.logs,
            http=self.http,
            delivery=self.delivery,
            alerts=self.alerts,
        )
        file = self.traces.with_name(f"plan-{len(self.managers)}.json")
        others = [elsewhere] if elsewhere else []
        manager = ManagerProcess(self.url, self.traces, plan, file, *others, environment=self.environment)
        self.managers.append(manager)
        return manager

    def snapshots(self) -> list[Snapshot]:
        """The snapshots of the living managers."""
        told = [read(session.snapshot) for session in self.do(self.engine.sessions()) if not session.ended]
        return [one for one in told if one is not None]

    def workers(self, pool: str | None = None) -> list[WorkerFigures]:
        return [worker for told in self.snapshots() for worker in told.workers if pool in (None, worker.pool)]

    def wish(self, name: str, host: str | None = None, **wanted: Any) -> None:
        """Write what an operator wants from a pool, on every host or on one."""
        self.do(self.engine.wish(pool_key(name, host), msgspec.json.encode(DesiredPool(**wanted)).decode(), by="test"))

    def tasks(self) -> list[Task]:
        return list(self.do(self.engine.find(EVERYTHING, limit=1_000_000, oldest_first=True)).tasks)

    def task(self, task: str) -> Task:
        (found,) = self.do(self.engine.get([task]))
        assert found is not None
        return found

    def attempts(self, task: str) -> list[Attempt]:
        return list(self.do(self.engine.attempts(task)))

    def happenings(self, *kinds: Kind) -> list[Happening]:
        """Oldest first."""
        return list(self.do(cast("FullStore", self.engine).happenings(kinds=kinds)))[::-1]

    def counts(self) -> dict[State, int]:
        totals: dict[State, int] = {}
        for queue in self.do(self.engine.queues()):
            for state, count in queue.counts.items():
                totals[state] = totals.get(state, 0) + count
        return totals

    def finished(self) -> int:
        return sum(count for state, count in self.counts().items() if state.finished)

    def traced(self, word: str = "") -> list[list[str]]:
        if not self.traces.exists():
            return []
        lines = [line.split() for line in self.traces.read_text().splitlines()]
        return [line for line in lines if not word or line[0] == word]

    def until(self, condition: Callable[[], object], *, within: float = 30.0, what: str = "") -> None:
        """Wait until the condition holds."""
        limit = time.monotonic() + within
        while not condition():
            if time.monotonic() > limit:
                said = "\n".join(f"  {line}" for manager in self.managers for line in manager.lines[-15:])
                raise AssertionError(f"not within {within} s: {what or condition}; {self.counts()}\n{said}")
            self.do(asyncio.sleep(0.02))

    def close(self) -> None:
        for manager in self.managers:
            manager.close()
        self.do(self.engine.close())
        self._runner.close()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
