"""Connections to the file, for writing and for reading. Python's own transaction handling is switched off."""

import contextlib
import os
import sqlite3
from pathlib import Path

from pitboss.model.errors import InvalidInput, StoreUnavailable, Unsupported

OLDEST = (3, 38, 0)
# 16 MiB of write-ahead log between checkpoints: each costs two more syncs, so more often would cost throughput.
_CHECKPOINT_PAGES = 4000
# A read that stays open for long makes the log grow; the next checkpoint after it cuts the file to this size.
_KEPT_LOG = 64 * 1024**2
_CACHE_KIB = 65_536
# For foreign programs that have the file open; our own writers take the lock in `lock.py` first.
_BUSY_MILLIS = 10_000


def checked_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path; refuses a path that cannot be a store, and an SQLite that is too old."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise Unsupported(
            f"SQLite {sqlite3.sqlite_version} is too old",
            why="the store needs 3.38 or newer (RETURNING, UPDATE FROM and the JSON operators)",
            fix="use a Python that is built with a newer SQLite, or another engine",
        )
    text = os.fspath(path)
    if not text or text == ":memory:" or text.startswith("file:") or "\0" in text:
        raise InvalidInput(
            f"{text!r:.80} is not a file that can be a store",
            why="the store is one ordinary file, shared by every process that works on it",
            fix="pass a path; for a store without a file use the memory engine",
        )
    return Path(text).absolute()


def create_file(path: Path) -> None:
    """A new store is readable by its owner only; SQLite gives its side files the same mode."""
    if not path.parent.is_dir():
        raise StoreUnavailable(
            f"{path} cannot be created",
            why=f"the folder {path.parent} does not exist",
            fix="create the folder, or correct the path",
        )
    # Only if it is not there: closing a file drops every lock that this process has on it, SQLite's included. Another
    # process would then believe that it is the last one, and remove the write-ahead log while we use it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def connect_writer(path: Path, *, as_it_is: bool = False) -> sqlite3.Connection:
    """`as_it_is`: do not switch the file to WAL, which needs the file for itself."""
    connection = _connect(path)
    logged = (f"wal_autocheckpoint = {_CHECKPOINT_PAGES}", f"journal_size_limit = {_KEPT_LOG}")
    # The first has an effect only on a new file, before anything is written to it.
    made = () if as_it_is else ("auto_vacuum = INCREMENTAL", "journal_mode = WAL")
    for pragma in (*made, "synchronous = FULL", *logged):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLIS}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    # Otherwise every savepoint, and so every request, would use a temporary file.
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection
