"""Enqueueing in the caller's own transaction: tasks and ring come with the caller's commit, or not at all."""

from collections.abc import Awaitable, Sequence
from typing import Any, overload

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pitboss.engines.postgres.faults import translated
from pitboss.engines.postgres.put import PutLocked, put_locked
from pitboss.engines.postgres.script import Script, Statements, adapted, run, run_sync
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.task import NewTask, Placed

_BEGIN = "SELECT 1"


@overload
def put_within(
    sql: Statements, connection: AsyncConnection[Any], tasks: Sequence[NewTask], now: Moment | None
) -> Awaitable[list[Placed]]: ...


@overload
def put_within(
    sql: Statements, connection: Connection[Any], tasks: Sequence[NewTask], now: Moment | None
) -> list[Placed]: ...


def put_within(
    sql: Statements,
    connection: Connection[Any] | AsyncConnection[Any],
    tasks: Sequence[NewTask],
    now: Moment | None,
) -> list[Placed] | Awaitable[list[Placed]]:
    script = put_locked(sql, tasks, now, ring=True)
    if isinstance(connection, AsyncConnection):
        return _async(connection, script)
    if isinstance(connection, Connection):
        return _sync(connection, script)
    raise InvalidInput(
        f"a {type(connection).__name__} is not a connection that tasks can be put on",
        why="put_within works on connections of psycopg 3",
        fix="pass a psycopg.Connection or psycopg.AsyncConnection to the same database",
    )


async def _async(connection: AsyncConnection[Any], script: Script[PutLocked]) -> list[Placed]:
    cursor = connection.cursor(row_factory=tuple_row)
    adapted(cursor.adapters)
    try:
        if _must_begin(connection):
            await cursor.execute(_BEGIN)
        # A refusal must leave the caller's transaction as it was.
        async with connection.transaction():
            return (await run(cursor, script)).placed
    except psycopg.Error as error:
        raise translated(error) from error


def _sync(connection: Connection[Any], script: Script[PutLocked]) -> list[Placed]:
    cursor = connection.cursor(row_factory=tuple_row)
    adapted(cursor.adapters)
    try:
        if _must_begin(connection):
            cursor.execute(_BEGIN)
        with connection.transaction():
            return run_sync(cursor, script).placed
    except psycopg.Error as error:
        raise translated(error) from error


def _must_begin(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """The driver begins a transaction with its first statement; a block of ours would otherwise commit it."""
    return not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
