"""Saves what can still be read of a damaged file: row by row, past the pages that cannot be read."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pitboss.engines.sqlite.connection import connect_reader

_FARTHEST = 2**40
Row = tuple[Any, ...]


class Saved(NamedTuple):
    """How many rows were saved, and the tables of which some could not be read."""

    rows: int
    damaged: list[str]


class _Table(NamedTuple):
    name: str
    sql: str
    columns: int
    key: list[str]
    has_rowid: bool

    @property
    def quoted(self) -> str:
        return _quoted(self.name)


def salvage(path: Path, to: Path, told: Callable[[int, int], None], recount: Sequence[str]) -> Saved:
    """Make a new file with the same tables. `recount` are the statements that count the tasks in it."""
    with closing(connect_reader(path)) as source, closing(sqlite3.connect(to, isolation_level=None)) as target:
        tables = _tables(source)
        target.execute("BEGIN")
        saved, damaged = 0, list[str]()
        for number, table in enumerate(tables, start=1):
            target.execute(table.sql)
            rows, whole = _copied(source, target, table)
            saved += rows
            damaged += [] if whole else [table.name]
            told(number, len(tables))
        for (text,) in source.execute("SELECT sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL"):
            target.execute(text)
        _keep_numbers(source, target)
        for statement in recount:
            target.execute(statement)
        target.execute("COMMIT")
    return Saved(saved, damaged)


def _tables(source: sqlite3.Connection) -> list[_Table]:
    found = source.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite#_%' ESCAPE '#'"
    ).fetchall()
    tables = []
    for name, sql in found:
        about = source.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
        key = [column[1] for column in sorted(about, key=lambda column: int(column[5])) if column[5]]
        tables.append(_Table(name, sql, len(about), key, "WITHOUT ROWID" not in sql.upper()))
    return tables


def _copied(source: sqlite3.Connection, target: sqlite3.Connection, table: _Table) -> tuple[int, bool]:
    """How many rows, and whether those are all."""
    reading = _by_rowid(source, table) if table.has_rowid else _by_key(source, table)
    names = "(rowid, " + ", ".join(_columns(source, table)) + ")" if table.has_rowid else ""
    marks = ", ".join("?" * (table.columns + table.has_rowid))
    insert = f"INSERT OR IGNORE INTO {table.quoted} {names} VALUES ({marks})"
    rows, whole = 0, True
    for row in reading:
        if row is None:
            whole = False
            continue
        rows += target.execute(insert, row).rowcount
    return rows, whole


def _columns(source: sqlite3.Connection, table: _Table) -> list[str]:
    return [_quoted(column[1]) for column in source.execute(f"PRAGMA table_info({table.quoted})")]


def _by_rowid(source: sqlite3.Connection, table: _Table) -> Iterator[Row | None]:
    """Rows in order; None where some could not be read."""
    text = f"SELECT rowid, * FROM {table.quoted} NOT INDEXED WHERE rowid >= ? ORDER BY rowid"

    def readable(start: int) -> bool | None:
        """Whether the next row can be read; None if there is none."""
        try:
            return None if source.execute(f"{text} LIMIT 1", (start,)).fetchone() is None else True
        except sqlite3.DatabaseError:
            return False

    start: int | None = -(2**63)
    while start is not None:
        try:
            for row in source.execute(text, (start,)):
                start = row[0] + 1
                yield row
            return
        except sqlite3.DatabaseError:
            yield None
            start = _after(max(start, -1), readable)


def _after(bad: int, readable: Callable[[int], bool | None]) -> int | None:
    """The first place behind a damaged one from which rows can be read; None if there is none."""
    step = 1
    while step <= _FARTHEST:
        found = readable(bad + step)
        if found is None:
            return None
        if found:
            break
        step *= 2
    else:
        return None
    low, high = bad + step // 2, bad + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if readable(middle) else (middle, high)
    return high


def _by_key(source: sqlite3.Connection, table: _Table) -> Iterator[Row | None]:
    """From both ends to the damage."""
    key = [_quoted(name) for name in table.key]
    for order in ("ASC", "DESC"):
        by = ", ".join(f"{name} {order}" for name in key)
        try:
            yield from source.execute(f"SELECT * FROM {table.quoted} ORDER BY {by}")
            return
        except sqlite3.DatabaseError:
            yield None


def _keep_numbers(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Numbers that were given once are not given again."""
    try:
        numbers = source.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    except sqlite3.DatabaseError:
        return
    for name, last in numbers:
        if not target.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (last, name)).rowcount:
            target.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, last))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
