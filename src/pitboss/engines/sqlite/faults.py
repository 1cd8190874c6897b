"""Errors of SQLite and the file system, with a cause and a fix for people."""

import sqlite3
from collections.abc import Callable

from pitboss.model.errors import PitbossError, StoreDamaged, StoreUnavailable

# Gets each error of the store, from any thread.
Trouble = Callable[[StoreUnavailable], None]

_UNKNOWN = "whether the last write happened is unknown; repeating it is safe"

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
# How to save what is left of a damaged file.
SAVE = (
    "stop all managers and keep a copy of the file with its -wal; then restore a backup, or save what can still be "
    "read: pitboss db backup saved.db --salvage"
)

# Result code (without its extension) -> what happened, why, and what to do. `{path}` is the database file.
_CAUSES: dict[str, tuple[str, str, str]] = {
    "SQLITE_FULL": ("the disk of {path} is full", "the write was undone", "free some space; nothing else is needed"),
    "SQLITE_READONLY": (
        "{path} cannot be written",
        "the file, its folder or its file system is read-only for this user",
        "give this user the right to write the file and its folder",
    ),
    "SQLITE_PERM": ("{path} may not be opened", "this user lacks the right", "check the owner and mode of the file"),
    "SQLITE_CANTOPEN": (
        "{path} cannot be opened",
        "its folder is missing, or this user may not use it",
        "create the folder, or correct the path",
    ),
    "SQLITE_NOTADB": (
        "{path} is not an SQLite database",
        "the file holds something else, or its beginning was overwritten",
        f"correct the path; if the path is right, {SAVE}",
    ),
    "SQLITE_CORRUPT": (
        "{path} is damaged",
        "its content contradicts itself; a disk fault or a copy made while it was in use are the usual causes",
        SAVE,
    ),
    "SQLITE_BUSY": (
        "{path} is locked by another program",
        "something that is not Pitboss holds a write transaction open on the file",
        "end that transaction (a shell, a script, a backup tool), then repeat",
    ),
    "SQLITE_IOERR": ("{path} cannot be read or written", _UNKNOWN, "look for disk faults in the system log"),
    "SQLITE_INTERRUPT": (
        "a read of {path} took too long and was ended",
        "a read that stays open keeps the write-ahead log from being reused",
        "narrow the filter, or ask for fewer tasks",
    ),
}


def translated(error: BaseException, path: str) -> BaseException:
    """Errors of SQLite and the system as `StoreUnavailable`; every other error as it is."""
    if isinstance(error, PitbossError) or not isinstance(error, sqlite3.Error | OSError):
        return error
    name = getattr(error, "sqlite_errorname", "") or ""
    for code, (what, why, fix) in _CAUSES.items():
        if name.startswith(code):
            kind = StoreDamaged if code in _DAMAGE else StoreUnavailable
            return _caused(kind(f"{what.format(path=path)} ({error})", why=why, fix=fix), error)
    unavailable = StoreUnavailable(
        f"the store {path} does not work: {error}", why=_UNKNOWN, fix="check the file, its folder and its disk"
    )
    return _caused(unavailable, error)


def closed(path: object) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store {path} is not open",
        why="the engine was closed, was never opened, or belongs to the process that this one was forked from",
        fix="open an engine in this process before you use it, and close it last",
    )


def is_fatal(error: BaseException) -> bool:
    """After these errors the connection must be closed: its cache may differ from the disk."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN"))


def _caused(error: StoreUnavailable, cause: BaseException) -> StoreUnavailable:
    error.__cause__ = cause
    return error
