"""The one thread that writes. It takes all requests that are waiting and commits them together."""

import asyncio
import contextlib
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pitboss.engines.protocol import Failpoint
from pitboss.engines.sqlite.act import Act, Flows, Statements
from pitboss.engines.sqlite.batch_lifecycle import conclude
from pitboss.engines.sqlite.connection import connect_writer
from pitboss.engines.sqlite.doorbell import Doorbell
from pitboss.engines.sqlite.faults import Trouble, closed, is_fatal, translated
from pitboss.engines.sqlite.lock import WriterLock
from pitboss.engines.sqlite.put import put
from pitboss.engines.sqlite.store_clock import StoreClock
from pitboss.engines.sqlite.totals import FlowWriter
from pitboss.model.errors import StoreUnavailable
from pitboss.model.task import NewTask

# A group is bounded so that other processes do not wait long for the lock.
_MOST_JOBS = 256
_MOST_WEIGHT = 2000


class Job:
    """One request: what to do, who waits for the answer, and the answer."""

    __slots__ = ("_done", "call", "error", "future", "loop", "name", "result", "rings", "tasks", "weight")

    def __init__(self, name: str, call: Callable[[Act], Any], weight: int = 1) -> None:
        self.name, self.call, self.weight = name, call, weight
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None
        self._done: threading.Lock | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.rings: set[str] = set()
        self.tasks: Sequence[NewTask] = ()

    @classmethod
    def putting(cls, tasks: Sequence[NewTask]) -> "Job":
        """A put: the writer may join it with others."""
        job = cls("put", lambda act: put(act, tasks), len(tasks))
        job.tasks = tasks
        return job

    def awaited(self) -> asyncio.Future[Any]:
        """The answer for the running loop."""
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        return self.future

    def expected(self) -> threading.Lock:
        """A lock that is free when the answer is there, for a plain thread."""
        self._done = threading.Lock()
        self._done.acquire()
        return self._done

    @property
    def dropped(self) -> bool:
        """The caller has gone, so it need not be begun."""
        return self.future is not None and self.future.cancelled()

    def answered(self) -> None:
        if self._done is not None:
            self._done.release()
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Owns the writing connection, the lock and the thread. Answers are given only after the commit.

    `_writing` is held by the thread that writes: its own, or a caller's plain thread that finds it idle.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: StoreClock,
        statements: Statements,
        lock: WriterLock,
        doorbell: Doorbell,
        failpoint: Failpoint | None,
        trouble: Trouble,
    ) -> None:
        self._path, self._clock, self._statements, self._trouble = path, clock, statements, trouble
        self._lock, self._doorbell, self._failpoint = lock, doorbell, failpoint
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False
        # What happened to tasks in the present transaction.
        self._flows: Flows = {}
        self._flow_writer = FlowWriter()
        self._thread = threading.Thread(target=self._run, name="pitboss-sqlite-writer", daemon=True)

    def start(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread.start()

    def submit(self, job: Job) -> None:
        with self._mutex:
            if self._closed:
                raise closed(self._path)
            self._jobs.put(job)

    def serve_here(self, job: Job) -> bool:
        """Do it in the calling thread; False if the writer is busy, and it must be submitted.

        Saves two changes of thread, a third of what a single put costs.
        """
        if not self._jobs.empty() or not self._writing.acquire(blocking=False):
            return False
        try:
            with self._mutex:
                if self._closed:
                    raise closed(self._path)
            self._serve([job])
        finally:
            self._writing.release()
        return True

    def stop(self, timeout: float) -> bool:
        """Finish all submitted requests, then end; False if that takes too long."""
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        more = True
        while more:
            first = self._jobs.get()
            if first is None:
                break
            with self._writing:
                more = self._serve([first], joined=True)
        with self._writing:
            self._disconnect()

    def _serve(self, group: list[Job], *, joined: bool = False) -> bool:
        """One group, from taking the lock to its answers; False if the engine is closing."""
        more = True
        try:
            self._lock.acquire()
            try:
                more = self._join(group) if joined else True
                self._commit(group)
            finally:
                self._lock.release()
        except BaseException as error:
            self._spoil(group, error)
        self._answer(group)
        rings = {queue for job in group for queue in job.rings}
        if rings:
            self._doorbell.ring(rings)
        return more

    def _join(self, group: list[Job]) -> bool:
        """Add the requests that came while we waited for the lock."""
        weight = group[0].weight
        while len(group) < _MOST_JOBS and weight < _MOST_WEIGHT:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return True
            if job is None:
                return False
            group.append(job)
            weight += job.weight
        return True

    def _commit(self, group: list[Job]) -> None:
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        before = connection.total_changes
        self._clock.look(connection)
        self._flows = {}
        alone = len(group) == 1
        for jobs in _bundles([job for job in group if not job.dropped]):
            if self._failpoint is not None or not self._put_together(connection, jobs):
                for job in jobs:
                    self._attempt(connection, job, alone)
        if self._flows:
            self._flow_writer.write(Act(connection, self._statements, self._clock.now()), self._flows)
        if connection.in_transaction:
            if connection.total_changes != before:
                self._clock.keep(connection)
            connection.execute("COMMIT")
        for job in group:
            self._reached(job)

    def _put_together(self, connection: sqlite3.Connection, jobs: list[Job]) -> bool:
        """Many small puts as one large one, which costs a tenth; False if they must be tried one by one."""
        if len(jobs) == 1:
            return False
        connection.execute("SAVEPOINT bundle")
        try:
            act = Act(connection, self._statements, self._clock.now())
            placed = iter(put(act, [task for job in jobs for task in job.tasks]))
            act.write_counts()
        except Exception:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO bundle")
            connection.execute("RELEASE bundle")
            return False
        connection.execute("RELEASE bundle")
        self._count(act)
        for job in jobs:
            job.result = list(islice(placed, len(job.tasks)))
        jobs[0].rings = act.rings
        return True

    def _attempt(self, connection: sqlite3.Connection, job: Job, alone: bool) -> None:
        """Run one request so that its failure leaves the others of its group untouched."""
        if not alone:
            connection.execute("SAVEPOINT request")
        try:
            act = self._perform(connection, job)
            if not alone:
                connection.execute("RELEASE request")
            self._count(act)
        except BaseException as error:
            job.error = translated(error, str(self._path))
            if isinstance(job.error, StoreUnavailable):
                self._trouble(job.error)
            # A full disk makes SQLite undo the whole transaction: then the others have failed too.
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK" if alone else "ROLLBACK TO request")
            if not alone:
                connection.execute("RELEASE request")
            if is_fatal(error):
                raise

    def _count(self, act: Act) -> None:
        """What happened in an act that is part of this transaction."""
        if not self._flows:
            self._flows = act.flows
            return
        for key, n in act.flows.items():
            self._flows[key] = self._flows.get(key, 0) + n

    def _perform(self, connection: sqlite3.Connection, job: Job) -> Act:
        act = Act(connection, self._statements, self._clock.now())
        if self._failpoint is not None:
            self._failpoint(f"{job.name}.before")
        job.result = job.call(act)
        act.write_counts()
        if act.touched or act.lanes:
            conclude(act)
        job.rings = act.rings
        if self._failpoint is not None:
            self._failpoint(f"{job.name}.commit")
        return act

    def _reached(self, job: Job) -> None:
        if self._failpoint is not None and job.error is None and not job.dropped:
            try:
                self._failpoint(f"{job.name}.after")
            except BaseException as error:
                job.error = error

    def _spoil(self, group: list[Job], error: BaseException) -> None:
        """The transaction as a whole failed: no request was written."""
        self._flow_writer = FlowWriter()
        cause = translated(error, str(self._path))
        if isinstance(cause, StoreUnavailable):
            self._trouble(cause)
        for job in group:
            job.error = job.error or cause
            job.rings = set()
        connection = self._connection
        if is_fatal(error):
            self._disconnect()
        elif connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._disconnect()

    def _answer(self, group: list[Job]) -> None:
        loops: dict[asyncio.AbstractEventLoop | None, list[Job]] = defaultdict(list)
        for job in group:
            loops[job.loop].append(job)
        for loop, jobs in loops.items():
            if loop is None:
                _tell(jobs)
                continue
            try:
                loop.call_soon_threadsafe(_tell, jobs)
            except RuntimeError:
                continue  # that loop is closed

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect_writer(self._path)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _bundles(jobs: list[Job]) -> Iterator[list[Job]]:
    """Puts that follow each other together, everything else by itself, in the order of arrival."""
    for is_put, together in groupby(jobs, key=lambda job: bool(job.tasks)):
        if is_put:
            yield list(together)
        else:
            yield from ([job] for job in together)


def _tell(jobs: list[Job]) -> None:
    for job in jobs:
        job.answered()
