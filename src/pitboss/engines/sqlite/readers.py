"""Reading, on connections that cannot write, in threads of their own.

A read is short: one that stays open keeps the write-ahead log from being reused.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from pitboss.engines.sqlite.act import json_list
from pitboss.engines.sqlite.connection import connect_reader
from pitboss.engines.sqlite.faults import Trouble, closed, translated
from pitboss.engines.sqlite.ledger import Ledger
from pitboss.engines.sqlite.open_queue import opens_at
from pitboss.engines.sqlite.reclaim import HOUR
from pitboss.engines.sqlite.rows import (
    STATES,
    attempt_of,
    handler_of,
    lead_of,
    queue_of,
    rate_of,
    session_of,
    task_of,
)
from pitboss.engines.sqlite.schema import stored_version
from pitboss.engines.sqlite.store_clock import StoreClock
from pitboss.model.duration import Moment
from pitboss.model.errors import StoreDamaged
from pitboss.model.queue import HandlerInfo, Queue, Wish
from pitboss.model.session import Lead, Session
from pitboss.model.states import State
from pitboss.model.task import Attempt, Task, last_run

T = TypeVar("T")
_THREADS = 2
_KEPT = 100


class Reader:
    """One read: a connection, the statements and the moment."""

    def __init__(self, connection: sqlite3.Connection, sql: dict[str, str], now: Moment) -> None:
        self._connection, self._sql, self.now = connection, sql, now
        self.ledger = Ledger(connection, sql, now)

    def get(self, ids: Sequence[str]) -> list[Task | None]:
        rows = self.rows("task_get", json_list(ids)) if ids else []
        found = {task.id: task for task in map(task_of, rows)}
        return [found.get(task) for task in ids]

    def tasks_before(self, task: str, limit: int) -> int | None:
        (one,) = self.get([task])
        if one is None or one.state is not State.PENDING:
            return None
        ((number,),) = self.rows("task_before", one.queue, one.priority, one.id, limit)
        return int(str(number))

    def attempts(self, task: str) -> list[Attempt]:
        history = [attempt_of(row) for row in self.rows("attempt_list", task)]
        known = self.get([task])[0]
        last = last_run(known) if known is not None else None
        return [*history, *([last] if last else [])][-_KEPT:]

    def queues(self) -> list[Queue]:
        counts: dict[str, dict[State, int]] = {}
        for queue, state, n in self.rows("count_list"):
            counts.setdefault(queue, {})[STATES[state]] = n
        return [
            queue_of(row, counts.get(row[0], {}), self._opens_at(row[0], row[5])) for row in self.rows("queue_list")
        ]

    def bound(self, pool: str, key: str) -> str | None:
        return next((str(row[0]) for row in self.rows("binding_get", pool, key, self.now)), None)

    def _opens_at(self, queue: str, rate: str | None) -> Moment | None:
        at = opens_at(rate_of(rate), self.rows("start_list", queue)) if rate else 0
        return at if at > self.now else None

    def handlers(self) -> list[HandlerInfo]:
        return [handler_of(row) for row in self.rows("handler_list")]

    def sessions(self) -> list[Session]:
        return [session_of(row) for row in self.rows("session_list", self.now - HOUR)]

    def leader(self) -> Lead | None:
        return next((lead_of(row) for row in self.rows("leader_get", self.now)), None)

    def wishes(self, since: int) -> list[Wish]:
        return [
            Wish(key=key, value=value, version=version, by=by)
            for key, value, version, by in self.rows("wish_list", since)
        ]

    def schema_version(self) -> int:
        return stored_version(self._connection)

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._sql[name], values).fetchall()


class Readers:
    """A small pool. Each read is one short transaction; one that takes too long is interrupted."""

    def __init__(self, path: Path, sql: dict[str, str], clock: StoreClock, timeout: float, trouble: Trouble) -> None:
        self._path, self._sql, self._clock, self._timeout = path, sql, clock, timeout
        self._trouble = trouble
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pitboss-sqlite-reader")
        self._idle: SimpleQueue[sqlite3.Connection | None] = SimpleQueue()
        for _ in range(_THREADS):
            self._idle.put(None)

    async def run(self, call: Callable[[Reader], T]) -> T:
        loop, watch = asyncio.get_running_loop(), _Watch()
        timer = loop.call_later(self._timeout, watch.interrupt)
        try:
            return await self._started(loop, call, watch)
        finally:
            timer.cancel()

    def _started(
        self, loop: asyncio.AbstractEventLoop, call: Callable[[Reader], T], watch: "_Watch"
    ) -> asyncio.Future[T]:
        try:
            return loop.run_in_executor(self._threads, self._run, call, watch)
        except RuntimeError as error:  # the pool has been shut down
            raise closed(self._path) from error

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        while not self._idle.empty():
            connection = self._idle.get()
            if connection is not None:
                connection.close()

    def _run(self, call: Callable[[Reader], T], watch: "_Watch") -> T:
        connection = self._idle.get()
        try:
            connection = connection or connect_reader(self._path)
            with watch.over(connection):
                connection.execute("BEGIN")
                try:
                    return call(Reader(connection, self._sql, self._clock.now()))
                finally:
                    connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
            connection = None
            told = translated(error, str(self._path))
            if isinstance(told, StoreDamaged):
                self._trouble(told)
            raise told from error
        finally:
            self._idle.put(connection)


class _Watch:
    """Ends a read from another thread, but never the next one on the same connection."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def over(self, connection: sqlite3.Connection) -> Iterator[None]:
        with self._mutex:
            self._connection = connection
        try:
            yield
        finally:
            with self._mutex:
                self._connection = None

    def interrupt(self) -> None:
        with self._mutex:
            if self._connection is not None:
                self._connection.interrupt()
