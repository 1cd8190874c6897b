"""The six verbs over one SQLite file, and its opening and closing."""

import asyncio
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from pitboss.engines.protocol import Clock, Failpoint
from pitboss.engines.sqlite import claim, diagnosis, registry, schema, settle, sweep
from pitboss.engines.sqlite.act import Act, Statements
from pitboss.engines.sqlite.bells import Bells
from pitboss.engines.sqlite.connection import checked_path, connect_writer, create_file
from pitboss.engines.sqlite.desk import Desk
from pitboss.engines.sqlite.faults import closed, translated
from pitboss.engines.sqlite.ledger import Reader
from pitboss.engines.sqlite.lock import WriterLock
from pitboss.engines.sqlite.readers import Readers
from pitboss.engines.sqlite.within import put_within
from pitboss.engines.sqlite.writer import Job, Writer
from pitboss.model.finding import Finding
from pitboss.model.session import Claimed, ClaimRequest, Reclaimed, Renewal
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.task import NewTask, Placed

T = TypeVar("T")
_READ_LIMIT = 30.0


class SqliteEngine(Desk):
    """A store in one file, shared by every process that opens it. Usable from any thread and any event loop.

    Beside the file stands a folder of the same name with `-pitboss` behind it: the writers' line and the doorbells.
    """

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
        self._clock, self._failpoint, self._lock_timeout = clock, failpoint, lock_timeout
        self._statements = Statements()
        self._bells = Bells(self._side_folder)
        self._open: _Opened | None = None

    async def open(self) -> None:
        if self._open is None:
            self._open = await asyncio.to_thread(self._opened)

    async def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await asyncio.to_thread(opened.close, self._lock_timeout)

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        return cast("list[Placed]", await self._awaited(Job.putting(tasks)))

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._opened_here()
        self._bells.listen()
        weight = sum(slot.free + slot.ahead for slot in request.slots)
        return (await self._write("claim", lambda act: claim.claim(act, request), weight)).claimed()

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        return await self._write("renew", lambda act: registry.renew(act, session, snapshot))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        plain = settle.plain(settlements)
        return await self._write("settle", lambda act: settle.settle(act, settlements, plain), len(settlements))

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        return await self._write("reclaim", lambda act: sweep.reclaim(act, limit), limit)

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        self._opened_here()
        return await self._bells.wait(queues, timeout)

    def put_sync(self, tasks: Sequence[NewTask]) -> list[Placed]:
        """`put` from a plain thread, without an event loop in between."""
        return cast("list[Placed]", self._waited(Job.putting(tasks)))

    def run_sync(self, name: str, call: Callable[[Act], T], weight: int = 1) -> T:
        """One write request from a plain thread; returns after the commit."""
        return cast("T", self._waited(Job(name, call, weight)))

    def put_within(self, connection: sqlite3.Connection, tasks: Sequence[NewTask]) -> list[Placed]:
        """As `put`, inside the transaction that is open on the caller's connection. Nobody is rung: nothing is there
        to be found before the caller's commit. `ring` the queues after it, or leave it to the poll."""
        return put_within(connection, tasks, path=self.path, clock=self._clock, statements=self._statements)

    def ring(self, queues: Iterable[str]) -> None:
        """Wake who waits for these queues."""
        self._bells.ring(queues)

    async def schema_version(self) -> tuple[int, int]:
        return await self._read(lambda reader: reader.schema_version()), schema.wanted_version()

    async def upgrade(self) -> list[str]:
        """Opening has upgraded the store already, so nothing is missing unless another process replaced the file."""
        return await asyncio.to_thread(self._upgraded)

    async def diagnose(self, clock: Clock) -> list[Finding]:
        """Through the writer's line, so that a store which cannot be written is found, too."""
        modes = await self._write("diagnose", diagnosis.modes)
        return [diagnosis.of_modes(*modes), *await asyncio.to_thread(diagnosis.of_file, self.path)]

    async def _write(self, name: str, call: Callable[[Act], T], weight: int = 1) -> T:
        return cast("T", await self._awaited(Job(name, call, weight)))

    async def _read(self, call: Callable[[Reader], T]) -> T:
        return await self._opened_here().readers.run(call)

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

    def _opened_here(self) -> "_Opened":
        opened = self._open
        if opened is None or opened.process != os.getpid():
            raise closed(self.path)
        return opened

    @property
    def _side_folder(self) -> Path:
        return self.path.with_name(self.path.name + "-pitboss")

    def _opened(self) -> "_Opened":
        try:
            create_file(self.path)
            self._side_folder.mkdir(mode=0o700, exist_ok=True)
            lock = WriterLock(self._side_folder, self._lock_timeout)
            connection = self._migrated(lock)[0]
        except (sqlite3.Error, OSError) as error:
            raise translated(error, str(self.path)) from error
        self._bells.open()
        writer = Writer(
            self.path,
            clock=self._clock,
            statements=self._statements,
            lock=lock,
            bells=self._bells,
            failpoint=self._failpoint,
        )
        writer.start(connection)
        readers = Readers(self.path, self._statements.by_name, self._clock, _READ_LIMIT)
        return _Opened(writer, readers, lock, self._bells)

    def _migrated(self, lock: WriterLock) -> tuple[sqlite3.Connection, list[str]]:
        """In line like every writer: switching to WAL and creating tables want the file for themselves."""
        lock.acquire()
        try:
            connection = connect_writer(self.path)
            try:
                return connection, schema.upgrade(connection)
            except BaseException:
                connection.close()
                raise
        finally:
            lock.release()

    def _upgraded(self) -> list[str]:
        lock = WriterLock(self._side_folder, self._lock_timeout)
        try:
            connection, names = self._migrated(lock)
            connection.close()
        except (sqlite3.Error, OSError) as error:
            raise translated(error, str(self.path)) from error
        finally:
            lock.close()
        return names


class _Opened:
    """What an open engine owns. Belongs to the process that opened it."""

    def __init__(self, writer: Writer, readers: Readers, lock: WriterLock, bells: Bells) -> None:
        self.writer, self.readers, self.process = writer, readers, os.getpid()
        self._lock, self._bells = lock, bells
        forget = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: _call(forget))

    def close(self, timeout: float) -> None:
        ended = self.writer.stop(timeout)
        self.readers.close()
        self._bells.close()
        if ended:
            self._lock.close()

    def _forked(self) -> None:
        self._lock.abandon()


def _call(method: "weakref.WeakMethod[Any]") -> None:
    alive = method()
    if alive is not None:
        alive()
