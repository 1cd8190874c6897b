"""Vacuums the tables that every claim changes, after enough claims.

Every change of a task leaves an old version of its row and old index entries behind, and claims read past those until
they are vacuumed. Autovacuum looks once a minute; a busy store makes a million of them in that time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import psycopg
from psycopg import AsyncConnection

from pitboss.model.errors import PitbossError

# Claims between two runs. Chosen, not tuned: a store that has just done a million tasks is as fast as new with it.
ENOUGH = 100_000
_TABLES = ("tasks", "resources", "uses")


class Vacuum:
    """Counts what this engine claims. One run at a time over all engines of a store, in the background.

    `pooled` tells whether there is a pooler between us and the server. A setting would then stay with a connection that
    another client gets next, so vacuuming is left to autovacuum.
    """

    def __init__(
        self,
        schema: str,
        connect: Callable[[], Awaitable[AsyncConnection[tuple[object, ...]]]],
        pooled: Callable[[], bool],
    ) -> None:
        self._schema, self._connect, self._pooled = schema, connect, pooled
        self._claimed = 0
        self._running: asyncio.Task[None] | None = None
        self._allowed = True

    def note_claims(self, count: int) -> None:
        """Begin a run if it is time."""
        self._claimed += count
        idle = self._running is None or self._running.done()
        if self._claimed >= ENOUGH and idle and self._allowed and not self._pooled():
            self._claimed = 0
            self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        try:
            connection = await self._connect()
        except (psycopg.Error, PitbossError):
            return
        try:
            await self._vacuum(connection)
        except psycopg.errors.InsufficientPrivilege:
            self._allowed = False  # not our table: left to autovacuum
        except psycopg.Error:
            return  # it was in the way of another transaction, or the server is going down: the next run will do
        finally:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    async def _vacuum(self, connection: AsyncConnection[tuple[object, ...]]) -> None:
        await connection.execute(b"SET statement_timeout = 0")
        # Held until the connection closes.
        lock = await connection.execute(
            "SELECT pg_try_advisory_lock(hashtext(%s))", (f"pitboss:vacuum:{self._schema}",)
        )
        row = await lock.fetchone()
        if row is not None and row[0]:
            tables = ", ".join(f"{self._schema}.{name}" for name in _TABLES)
            await connection.execute(f"VACUUM (TRUNCATE false) {tables}".encode())
