"""A retry of 100,000 failed tasks that all fail again, as an operation, while claims go on.

`python -m benchmarks.operations` takes SQLite and then PostgreSQL; `--tasks 2000 --only sqlite` is shorter. A manager
drains the tasks, so that all fail (the load without an operation). Then `pitboss dead retry` retries them while the
same manager drains them again and performs the operation; the command and the manager are killed (SIGKILL) on the way,
and another manager goes on. Last, a second retry is cancelled.

It fails unless each task was retried exactly once, the cancelled one stopped, and the 99th percentile of a claim was
at most twice that without an operation. Claims are measured by a prober of its own: put one task, claim it, settle it.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, cast

from pitboss import wiring
from pitboss.engines.protocol import FullStore
from pitboss.model.filter import by, parsed
from pitboss.model.ids import IdMaker
from pitboss.model.operation import Operation, OperationStatus
from pitboss.model.outcome import Completed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import NewTask
from tests.servers.postgres import PostgresServer

TASKS = 100_000
MOST = 2.0
# A p99 of a few samples is one bad moment: without an operation it is taken to be at least this.
_LEAST = 0.002
_APP = str(Path(__file__).with_name("failing_app.py"))
_PITBOSS = str(Path(sys.executable).with_name("pitboss"))
_EVERY = 0.01
_LOOK = 0.1
_LIMIT = 900.0
_PAGE = 1000


class Report(NamedTuple):
    """Seconds, and the 99th percentile of a claim."""

    drained: float
    without: float
    retried: float
    meanwhile: float
    stopped: float
    faults: list[str]

    def __str__(self) -> str:
        return (
            f"claims' p99 {self.without * 1000:.1f} ms without an operation ({self.drained:.1f} s to drain), "
            f"{self.meanwhile * 1000:.1f} ms with one ({self.retried:.1f} s, killed twice on the way): "
            f"{self.meanwhile / max(self.without, _LEAST):.2f} times; cancelled in {self.stopped:.1f} s"
        )


class _House:
    """The store, managers and commands on it, and the prober."""

    def __init__(self, store: FullStore, url: str, folder: Path, pace: str | None) -> None:
        self.store, self._folder = store, folder
        self._pace = () if pace is None else ("--rate", pace)
        self._environment = os.environ | {"PITBOSS_STORE": url}
        self._ids = IdMaker(wiring.SystemClock().now, wiring.randbits())

    async def put(self, tasks: int) -> None:
        for start in range(0, tasks, _PAGE):
            some = range(start, min(tasks, start + _PAGE))
            await self.store.put([NewTask(id=self._ids(), handler="broken", params=f'{{"n":{n}}}') for n in some])

    @contextmanager
    def started(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        with (self._folder / f"{words[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [_PITBOSS, *words], cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def manager(self) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        return self.started("up", _APP, "--workers", "1", "--concurrency", "20", "--no-http")

    def retry(self) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        return self.started("dead", "retry", "--all", "--yes", *self._pace)

    async def until(self, true: Callable[[], Awaitable[bool]]) -> float:
        """Wait until it is true; seconds."""
        began = time.monotonic()
        while not await true():
            if time.monotonic() - began > _LIMIT:
                raise TimeoutError(f"not true after {_LIMIT:g} s; see {self._folder}")
            await asyncio.sleep(_LOOK)
        return time.monotonic() - began

    async def count(self, state: State) -> int:
        queues = {queue.name: queue for queue in await self.store.queues()}
        return queues["default"].counts.get(state, 0) if "default" in queues else 0

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[list[float]]:
        """Seconds of each claim, as long as this lasts."""
        took = list[float]()
        prober = asyncio.create_task(self._probe(took))
        try:
            yield took
        finally:
            prober.cancel()
            await asyncio.gather(prober, return_exceptions=True)

    async def _probe(self, took: list[float]) -> None:
        await self.store.register([HandlerInfo(name="probe", queue="probe")])
        session = await self.store.open_session(SessionInfo(host="prober", handlers=("probe",), ttl=3600 * 1_000_000))
        request = ClaimRequest(session=session.number, slots=(Slot(free=1, queues=("probe",)),))
        while True:
            await self.store.put([NewTask(id=self._ids(), handler="probe", queue="probe")])
            began = time.perf_counter()
            claims = (await self.store.claim(request)).claims
            took.append(time.perf_counter() - began)
            await self.store.settle(
                [
                    Settlement(id=one.id, token=one.token, transition=decide(one, Completed(), Policy(), 0, 0.5))
                    for one in claims
                ]
            )
            await asyncio.sleep(_EVERY)

    async def newest(self) -> Operation | None:
        found = await self.store.operations(limit=1)
        return found[0] if found else None


async def measured(url: str, folder: Path, tasks: int, pace: str | None) -> Report:
    store = cast("FullStore", wiring.make_engine(url))
    await store.open()
    try:
        return await _measured(_House(store, url, folder, pace), tasks)
    finally:
        await store.close()


async def _measured(house: _House, tasks: int) -> Report:
    faults = list[str]()
    await house.store.register([HandlerInfo(name="broken", policy='{"max_attempts":1}')])
    await house.put(tasks)
    with house.manager() as manager:
        async with house.probing() as without:
            drained = await house.until(lambda: _are(house, State.FAILED, tasks))
        async with house.probing() as meanwhile:
            retried = await _retried(house, manager, tasks)
    operation = await house.newest()
    faults += await _not_once(house, tasks)
    if operation is None or (operation.status, operation.done) != (OperationStatus.DONE, tasks):
        faults.append(f"the operation is {operation}")
    stopped, more = await _cancelled(house, tasks)
    found = Report(drained, _p99(without), retried, _p99(meanwhile), stopped, faults + more)
    if found.meanwhile > MOST * max(found.without, _LEAST):
        found.faults.append(f"claims took {found.meanwhile / found.without:.1f} times as long")
    return found


async def _retried(house: _House, manager: "subprocess.Popen[bytes]", tasks: int) -> float:
    """Begun by a command that is killed after a quarter, performed by a manager that is killed after a half."""
    began = time.monotonic()
    with house.retry() as command:
        await house.until(lambda: _has_done(house, tasks // 4))
        command.send_signal(signal.SIGKILL)
        await house.until(lambda: _has_done(house, tasks // 2))
    manager.send_signal(signal.SIGKILL)
    manager.wait()
    with house.manager():
        await house.until(lambda: _is_over(house))
        await house.until(lambda: _are(house, State.FAILED, tasks))
    return time.monotonic() - began


async def _cancelled(house: _House, tasks: int) -> tuple[float, list[str]]:
    """A second retry, performed by the command, is cancelled by another; seconds until it stops."""
    first = await house.newest()
    with house.retry() as command:
        await house.until(lambda: _is_another(house, first, tasks // 20))
        operation = await house.newest()
        assert operation is not None
        began = time.monotonic()
        with house.started("operations", "cancel", operation.id) as cancel:
            await house.until(lambda: _has_ended(cancel))
        await house.until(lambda: _has_ended(command))
        stopped = time.monotonic() - began
    operation = await house.newest()
    assert operation is not None
    pending = await house.count(State.PENDING)
    if operation.status is not OperationStatus.CANCELLED or not operation.done == pending < tasks:
        return stopped, [f"cancelled: {pending} tasks are pending, the operation is {operation}"]
    return stopped, []


async def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


async def _are(house: _House, state: State, tasks: int) -> bool:
    return await house.count(state) == tasks


async def _has_done(house: _House, tasks: int) -> bool:
    operation = await house.newest()
    return operation is not None and operation.done >= tasks


async def _is_another(house: _House, first: Operation | None, tasks: int) -> bool:
    operation = await house.newest()
    return operation is not None and (first is None or operation.id != first.id) and operation.done >= tasks


async def _is_over(house: _House) -> bool:
    operation = await house.newest()
    return operation is not None and operation.status is not OperationStatus.RUNNING


async def _not_once(house: _House, tasks: int) -> list[str]:
    """Tasks that did not fail exactly twice: at first, and after the retry. A killed run may come between."""
    faults, after, seen = list[str](), None, 0
    while True:
        page = await house.store.find(parsed("task:broken"), limit=_PAGE, after=after, oldest_first=True)
        for task in page.tasks:
            # Two claims and two failures in the ordinary case; the history is read only of the others.
            if task.claim != 2:
                outcomes = [one.outcome for one in await house.store.attempts(task.id)]
                if outcomes.count("failed") != 2:
                    faults.append(f"task {task.id}: {outcomes}")
        seen, after = seen + len(page.tasks), page.next
        if after is None:
            break
    failed = (await house.store.count(by(state=State.FAILED, task="broken"), most=10_000_000)).number
    return [*faults[:5], *([] if seen == failed == tasks else [f"{failed} of {seen} tasks are failed"])]


def _p99(took: list[float]) -> float:
    return sorted(took)[round(0.99 * (len(took) - 1))]


def run(engine: str, tasks: int, pace: str | None = None) -> Report:
    """On a fresh store of this kind. A few tasks need a pace, or the retry is over before anything can be killed."""
    with tempfile.TemporaryDirectory(prefix="pitboss-operations-") as folder:
        if engine == "sqlite":
            return asyncio.run(measured(f"sqlite:///{folder}/store.db", Path(folder), tasks, pace))
        with PostgresServer() as server:
            return asyncio.run(measured(server.create_database(), Path(folder), tasks, pace))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tasks", type=int, default=TASKS)
    arguments.add_argument("--only", choices=("sqlite", "postgres"))
    arguments.add_argument("--pace", help="The rate of the retries, such as 400/s.")
    given = arguments.parse_args()
    wrong = 0
    for engine in (given.only,) if given.only else ("sqlite", "postgres"):
        report = run(engine, given.tasks, given.pace)
        print(f"{engine}, {given.tasks:,} tasks: {report}", *report.faults, sep="\n  ", flush=True)
        wrong += bool(report.faults)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
