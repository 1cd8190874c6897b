"""Putting tasks and publishing events in the caller's own transaction."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pitboss.engines.sqlite.act import Act, Statements
from pitboss.engines.sqlite.faults import translated
from pitboss.engines.sqlite.store_clock import StoreClock
from pitboss.engines.sqlite.totals import FlowWriter
from pitboss.model.errors import InvalidInput

T = TypeVar("T")


def within(
    connection: sqlite3.Connection,
    call: Callable[[Act], T],
    *,
    path: Path,
    clock: StoreClock,
    statements: Statements,
) -> T:
    """Do it in the caller's open transaction; if it fails, that transaction is unchanged."""
    with _default_factories(connection):
        try:
            _check_same_file(connection, path)
            _check_open(connection)
            connection.execute("SAVEPOINT pitboss_within")
            try:
                act = Act(connection, statements, clock.now())
                answer = call(act)
                act.write_counts()
                FlowWriter().write(act, act.flows)
                clock.keep(connection, surely=False)
            except BaseException:
                connection.execute("ROLLBACK TO pitboss_within")
                raise
            finally:
                connection.execute("RELEASE pitboss_within")
        except sqlite3.Error as error:
            raise translated(error, str(path)) from error
    return answer


@contextmanager
def _default_factories(connection: sqlite3.Connection) -> Iterator[None]:
    """Plain rows and text, whatever the caller's connection is set to."""
    rows, text = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        yield
    finally:
        connection.row_factory, connection.text_factory = rows, text


def _check_same_file(connection: sqlite3.Connection, path: Path) -> None:
    files = {name: file for _, name, file in connection.execute("PRAGMA database_list")}
    main = files.get("main")
    if not main or not path.samefile(main):
        raise InvalidInput(
            f"the connection is open on {main or 'no file'}, not on {path}",
            why="tasks can join a transaction only in the database that holds them",
            fix="open the connection on the store's file, or enqueue without a connection after your commit",
        )


def _check_open(connection: sqlite3.Connection) -> None:
    if not connection.in_transaction:
        raise InvalidInput(
            "the connection has no open transaction",
            why="the task would be stored at once, even if your own writes fail; Python's sqlite3 begins a "
            "transaction by itself only before INSERT, UPDATE, DELETE and REPLACE",
            fix='execute "BEGIN IMMEDIATE" first',
        )
