"""How the engine hands requests to its writer and its readers."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pitboss.engines.protocol import Clock, Failpoint
from pitboss.engines.sqlite import access
from pitboss.engines.sqlite.act import Act, Statements
from pitboss.engines.sqlite.connection import checked_path
from pitboss.engines.sqlite.doorbell import Doorbell
from pitboss.engines.sqlite.faults import Trouble, closed
from pitboss.engines.sqlite.open_store import OpenStore, side_folder
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.store_clock import StoreClock
from pitboss.engines.sqlite.within import within
from pitboss.engines.sqlite.writer import Job
from pitboss.model.access import AuditEntry
from pitboss.model.errors import StoreUnavailable

T = TypeVar("T")


class Calls:
    """The open store, and the base of each group of verbs."""

    name = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock,
        failpoint: Failpoint | None = None,
        lock_timeout: float = 10.0,
    ) -> None:
        self.path = checked_path(path)
        self.clock, self._failpoint, self._lock_timeout = clock, failpoint, lock_timeout
        self._statements = Statements()
        self._store_clock = StoreClock(clock, self._statements)
        self._doorbell = Doorbell(side_folder(self.path))
        self._store: OpenStore | None = None
        self._told: Trouble | None = None
        # What an operator does through this engine, for the audit log.
        self._entry: AuditEntry | None = None

    async def open(self) -> None:
        if self._store is None:
            self._store = await asyncio.to_thread(self._opened)

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await asyncio.to_thread(store.close)

    async def _operate(self, name: str, call: Callable[[Act], T], weight: int = 1) -> T:
        """An act of an operator, with its entry in the audit log."""
        entry = self._entry
        if entry is None:
            return await self._write(name, call, weight)
        return await self._write(name, lambda act: access.audited(act, call, entry), weight)

    async def _write(self, name: str, call: Callable[[Act], T], weight: int = 1) -> T:
        return cast("T", await self._awaited(Job(name, call, weight)))

    async def _read(self, call: Callable[[Reader], T]) -> T:
        return await self._opened_here().readers.run(call)

    def _within(self, connection: sqlite3.Connection, call: Callable[[Act], T]) -> T:
        return within(connection, call, path=self.path, clock=self._store_clock, statements=self._statements)

    def _awaited(self, job: Job) -> asyncio.Future[Any]:
        answer = job.awaited()
        self._opened_here().writer.submit(job)
        return answer

    def _waited(self, job: Job) -> Any:
        writer = self._opened_here().writer
        if not writer.serve_here(job):
            done = job.expected()
            writer.submit(job)
            done.acquire()
        if job.error is not None:
            raise job.error
        return job.result

    def _opened(self) -> OpenStore:
        return OpenStore(
            self.path,
            clock=self._store_clock,
            statements=self._statements,
            doorbell=self._doorbell,
            failpoint=self._failpoint,
            lock_timeout=self._lock_timeout,
            trouble=self._tell,
        )

    def _tell(self, error: StoreUnavailable) -> None:
        if self._told is not None:
            self._told(error)

    def _opened_here(self) -> OpenStore:
        store = self._store
        if store is None or store.process != os.getpid():
            raise closed(self.path)
        return store
