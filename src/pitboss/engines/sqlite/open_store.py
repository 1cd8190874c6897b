"""An open store: its file brought to the current schema, its writer, its readers, and the folder beside it."""

import os
import sqlite3
import weakref
from pathlib import Path
from typing import Any

from pitboss.engines.protocol import Failpoint
from pitboss.engines.sqlite import schema
from pitboss.engines.sqlite.act import Statements
from pitboss.engines.sqlite.connection import connect_writer, create_file
from pitboss.engines.sqlite.doorbell import Doorbell
from pitboss.engines.sqlite.faults import Trouble, translated
from pitboss.engines.sqlite.lock import WriterLock
from pitboss.engines.sqlite.readers import Readers
from pitboss.engines.sqlite.store_clock import StoreClock
from pitboss.engines.sqlite.writer import Writer

_READ_LIMIT = 30.0


def side_folder(path: Path) -> Path:
    """The folder with the lock of the writers and the doorbells."""
    return path.with_name(path.name + "-pitboss")


def upgrade(path: Path, lock_timeout: float) -> list[str]:
    """Apply what is missing; the names of the migrations applied."""
    lock = WriterLock(side_folder(path), lock_timeout)
    try:
        connection, names = _migrated(path, lock, None)
        connection.close()
    except (sqlite3.Error, OSError) as error:
        raise translated(error, str(path)) from error
    finally:
        lock.close()
    return names


class OpenStore:
    """What an open engine owns. Belongs to the process that opened it."""

    def __init__(
        self,
        path: Path,
        *,
        clock: StoreClock,
        statements: Statements,
        doorbell: Doorbell,
        failpoint: Failpoint | None,
        lock_timeout: float,
        trouble: Trouble,
    ) -> None:
        self.process = os.getpid()
        self._doorbell, self._timeout = doorbell, lock_timeout
        self._lock, connection = _prepared(path, lock_timeout, clock)
        doorbell.open()
        self.writer = Writer(
            path,
            clock=clock,
            statements=statements,
            lock=self._lock,
            doorbell=doorbell,
            failpoint=failpoint,
            trouble=trouble,
        )
        self.writer.start(connection)
        self.readers = Readers(path, statements.by_name, clock, _READ_LIMIT, trouble)
        forget = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: _call(forget))

    def close(self) -> None:
        ended = self.writer.stop(self._timeout)
        self.readers.close()
        self._doorbell.close()
        if ended:
            self._lock.close()

    def _forked(self) -> None:
        self._lock.abandon()


def _prepared(path: Path, lock_timeout: float, clock: StoreClock) -> tuple[WriterLock, sqlite3.Connection]:
    """The file, created and migrated if need be, its clock begun; its lock, and a connection that may write."""
    try:
        create_file(path)
        side_folder(path).mkdir(mode=0o700, exist_ok=True)
        lock = WriterLock(side_folder(path), lock_timeout)
        return lock, _ready(path, clock) or _migrated(path, lock, clock)[0]
    except (sqlite3.Error, OSError) as error:
        raise translated(error, str(path)) from error


def _ready(path: Path, clock: StoreClock) -> sqlite3.Connection | None:
    """A connection, if opening has nothing to write: then it does not wait for others.

    The caller may have a transaction of its own open on the file, for which a writer waits that has the lock.
    """
    connection = connect_writer(path, as_it_is=True)
    try:
        logged = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        if logged and schema.stored_version(connection) == schema.wanted_version() and clock.has_begun(connection):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _migrated(path: Path, lock: WriterLock, clock: StoreClock | None) -> tuple[sqlite3.Connection, list[str]]:
    """Under the lock like every write: switching to WAL and creating tables need the file for themselves."""
    lock.acquire()
    try:
        connection = connect_writer(path)
        try:
            names = schema.upgrade(connection)
            if clock is not None:
                clock.begin(connection)
            return connection, names
        except BaseException:
            connection.close()
            raise
    finally:
        lock.release()


def _call(method: "weakref.WeakMethod[Any]") -> None:
    alive = method()
    if alive is not None:
        alive()
