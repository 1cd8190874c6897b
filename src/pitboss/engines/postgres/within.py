"""Enqueueing in the caller's own transaction: tasks and ring come with the caller's commit, or not at all."""

from collections.abc import Awaitable, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pitboss.engines.postgres.events import publish
from pitboss.engines.postgres.faults import translated
from pitboss.engines.postgres.put import put_locked
from pitboss.engines.postgres.script import Script, Statements, T, adapted, run, run_sync
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.event import NewEvent, Published
from pitboss.model.task import NewTask, Placed

_BEGIN = "SELECT 1"
_Callers = Connection[Any] | AsyncConnection[Any]


def put_within(
    sql: Statements, connection: _Callers, tasks: Sequence[NewTask], now: Moment | None
) -> list[Placed] | Awaitable[list[Placed]]:
    """Awaitable if the connection is async."""

    def script() -> Script[list[Placed]]:
        return (yield from put_locked(sql, tasks, now, ring=True)).placed

    return _within(connection, script())


def publish_within(
    sql: Statements, connection: _Callers, events: Sequence[NewEvent], now: Moment | None
) -> list[Published] | Awaitable[list[Published]]:
    """Awaitable if the connection is async."""

    def script() -> Script[list[Published]]:
        return (yield from publish(sql, events, now, ring=True, quickly=False)).answers

    return _within(connection, script())


def _within(connection: _Callers, script: Script[T]) -> T | Awaitable[T]:
    if isinstance(connection, AsyncConnection):
        return _async(connection, script)
    if isinstance(connection, Connection):
        return _sync(connection, script)
    raise InvalidInput(
        f"a {type(connection).__name__} is not a connection that tasks can be put on",
        why="put_within works on connections of psycopg 3",
        fix="pass a psycopg.Connection or psycopg.AsyncConnection to the same database",
    )


async def _async(connection: AsyncConnection[Any], script: Script[T]) -> T:
    cursor = connection.cursor(row_factory=tuple_row)
    adapted(cursor.adapters)
    try:
        if _must_begin(connection):
            await cursor.execute(_BEGIN)
        # A refusal must leave the caller's transaction as it was.
        async with connection.transaction():
            return await run(cursor, script)
    except psycopg.Error as error:
        raise translated(error) from error


def _sync(connection: Connection[Any], script: Script[T]) -> T:
    cursor = connection.cursor(row_factory=tuple_row)
    adapted(cursor.adapters)
    try:
        if _must_begin(connection):
            cursor.execute(_BEGIN)
        with connection.transaction():
            return run_sync(cursor, script)
    except psycopg.Error as error:
        raise translated(error) from error


def _must_begin(connection: _Callers) -> bool:
    """The driver begins a transaction with its first statement; a block of ours would otherwise commit it."""
    return not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
