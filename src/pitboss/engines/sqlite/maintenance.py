"""Looking for damage in the file, copying it while it is in use, and counting its tasks again."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.connection import connect_reader
from pitboss.engines.sqlite.faults import SAVE, translated
from pitboss.engines.sqlite.salvage import salvage
from pitboss.model.errors import StoreDamaged
from pitboss.model.finding import Finding, Grade, count_finding, fine, problem, warning
from pitboss.model.text import counted

Told = Callable[[int, int], None]
# These grow with the work, so the others are checked first.
_LARGE = (
    *("pitboss_requests", "pitboss_audit", "pitboss_happenings", "pitboss_uses", "pitboss_events"),
    *("pitboss_attempts", "pitboss_tasks"),
)
_PAGES_AT_ONCE = 2000
_SHOWN = 3
_ENDS = "a disk fault, a copy made while it was in use, or a program that wrote into it"
RECOUNT = (
    "maintenance_forget_counts",
    "maintenance_count",
    "maintenance_forget_batch_counts",
    "maintenance_count_batches",
)


def check(path: Path, differences: str | None, seconds: float | None, *, full: bool = False) -> list[Finding]:
    """As the contract says. A file that is not there has no damage. `differences` is the statement that compares the
    counts, if they are wanted."""
    if not path.exists():
        return []
    try:
        with closing(connect_reader(path)) as connection, _limited(connection, seconds) as is_over:
            found = _check_content(path, connection, is_over, full=full)
            if differences is not None and found.grade is Grade.OK:
                return [found, *_check_counts(connection, differences, is_over)]
            return [found]
    except sqlite3.Error as error:
        told = translated(error, str(path))
        if isinstance(told, StoreDamaged):
            return [_damaged(path, [str(error)])]
        raise told from error


def recount(act: Act) -> int:
    """Write the numbers of tasks that a recount gives; how many were wrong."""
    wrong = len(list(act.rows("maintenance_differences")))
    for statement in RECOUNT:
        act.run(statement)
    return wrong


def backup(path: Path, to: Path, told: Told) -> None:
    """Copy the file as it is at this moment. The read that it keeps open holds up no writer; only the log grows."""
    # SQLite's own backup begins again with every write of another process, unless a read keeps the state.
    with closing(connect_reader(path)) as source, closing(sqlite3.connect(to, isolation_level=None)) as target:
        for pragma in ("journal_mode = OFF", "synchronous = OFF"):
            target.execute(f"PRAGMA {pragma}").fetchall()
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(
            target, pages=_PAGES_AT_ONCE, progress=lambda _status, left, total: told(total - left, total), sleep=0
        )
    with to.open("rb+") as file:
        os.fsync(file.fileno())


def backup_checked(path: Path, to: Path, told: Told) -> str:
    """As `backup`; `StoreDamaged` if the copy is."""
    backup(path, to, told)
    (found,) = check(to, None, None)
    if found.grade is Grade.PROBLEM:
        what = found.what.replace(str(to), str(path))
        raise StoreDamaged(f"{what}; a copy would be as damaged", why=found.why, fix=found.fix)
    return f"to restore it, stop all managers and put it in the place of {path}, without the -wal and -shm files there"


def salvage_told(path: Path, to: Path, told: Told, recount: Sequence[str]) -> str:
    """As `salvage`, with its result in words."""
    saved = salvage(path, to, told, recount)
    lost = f"; some rows could not be read, in {', '.join(saved.damaged)}" if saved.damaged else ""
    return (
        f"{counted(saved.rows, 'row')} were saved{lost or ', which are all'}. To go on with them, stop all managers "
        f"and put the file in the place of {path}, without the -wal and -shm files there"
    )


def remove(path: Path) -> None:
    """A copy that was not finished, with what SQLite may have put beside it."""
    for ending in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).unlink()


def _check_content(path: Path, connection: sqlite3.Connection, is_over: Callable[[], bool], *, full: bool) -> Finding:
    if full:
        faults = _faults(connection, "PRAGMA integrity_check")
        return _damaged(path, faults) if faults else fine("content", f"integrity_check found no damage in {path}")
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if "pitboss_meta" not in names:
        return warning(
            "content",
            f"{path} has no tables of Pitboss",
            why="nothing was stored there yet, or it is another file",
            fix="check the path",
        )
    names.sort(key=lambda name: (name in _LARGE, name))
    checked = 0
    with suppress(_Cut):
        for name in names:
            if is_over():
                break
            faults = _faults(connection, f"""PRAGMA quick_check("{name.replace('"', '""')}")""")
            if faults:
                return _damaged(path, faults)
            checked += 1
    if checked < len(names):
        part = f"{checked} of {counted(len(names), 'table')}"
        return fine("content", f"no damage found in {part} of {path} in the time; pitboss db check reads them all")
    return fine("content", f"no damage found in the {counted(len(names), 'table')} of {path}")


class _Cut(Exception):
    """The time was over."""


def _faults(connection: sqlite3.Connection, statement: str) -> list[str]:
    try:
        found = [str(row[0]) for row in connection.execute(statement)]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname == "SQLITE_INTERRUPT":
            raise _Cut from error
        raise
    return [line for text in found if text != "ok" for line in text.splitlines() if not line.startswith("***")]


def _check_counts(connection: sqlite3.Connection, differences: str, is_over: Callable[[], bool]) -> Iterator[Finding]:
    if is_over():
        return
    try:
        rows: list[Any] = connection.execute(differences).fetchall()
    except sqlite3.OperationalError as error:
        # Cut short, or not a store of ours yet.
        if error.sqlite_errorname in ("SQLITE_INTERRUPT", "SQLITE_ERROR"):
            return
        raise
    yield count_finding(rows)


def _damaged(path: Path, faults: list[str]) -> Finding:
    more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return problem(
        "content",
        f"{path} is damaged: {'; '.join(faults[:_SHOWN])}{more}",
        why=f"the usual causes are {_ENDS}; tasks in the damaged part may be lost, and writing may make it worse",
        fix=SAVE,
    )


@contextmanager
def _limited(connection: sqlite3.Connection, seconds: float | None) -> Iterator[Callable[[], bool]]:
    """Interrupt what runs on the connection after that time; the value says whether it is over."""
    over = threading.Event()

    def end() -> None:
        over.set()
        connection.interrupt()

    if seconds is None:
        yield over.is_set
        return
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        if not seconds:
            timer.join()
        yield over.is_set
    finally:
        timer.cancel()
        # The connection is closed next, and must not be interrupted after that.
        timer.join()
