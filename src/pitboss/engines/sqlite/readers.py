"""Reading connections and the threads that use them."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from pitboss.engines.protocol import Clock
from pitboss.engines.sqlite.connection import connect_reader
from pitboss.engines.sqlite.faults import closed, translated
from pitboss.engines.sqlite.ledger import Reader

T = TypeVar("T")
_THREADS = 2


class Readers:
    """A small pool. Each read is one short transaction; one that takes too long is interrupted."""

    def __init__(self, path: Path, sql: dict[str, str], clock: Clock, timeout: float) -> None:
        self._path, self._sql, self._clock, self._timeout = path, sql, clock, timeout
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
            raise translated(error, str(self._path)) from error
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
