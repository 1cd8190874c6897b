"""Enqueueing inside the caller's own transaction."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pitboss.engines.protocol import Clock
from pitboss.engines.sqlite.act import Act, Statements
from pitboss.engines.sqlite.faults import translated
from pitboss.engines.sqlite.put import put
from pitboss.model.errors import InvalidInput
from pitboss.model.task import NewTask, Placed


def put_within(
    connection: sqlite3.Connection, tasks: Sequence[NewTask], *, path: Path, clock: Clock, statements: Statements
) -> list[Placed]:
    """Put in the caller's open transaction; if it fails, that transaction is as it was before."""
    with _our_way(connection):
        try:
            _check_same_file(connection, path)
            _check_open(connection)
            connection.execute("SAVEPOINT pitboss_put")
            try:
                act = Act(connection, statements, clock.now())
                placed = put(act, tasks)
                act.counted()
            except BaseException:
                connection.execute("ROLLBACK TO pitboss_put")
                raise
            finally:
                connection.execute("RELEASE pitboss_put")
        except sqlite3.Error as error:
            raise translated(error, str(path)) from error
    return placed


@contextmanager
def _our_way(connection: sqlite3.Connection) -> Iterator[None]:
    """Plain rows and text, whatever the caller has set for himself."""
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
            why="the task would be stored at once, whatever comes of your own writes; Python's sqlite3 begins a "
            "transaction by itself only before INSERT, UPDATE, DELETE and REPLACE",
            fix='execute "BEGIN IMMEDIATE" first',
        )
