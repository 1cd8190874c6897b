"""Vacuums the tables that every claim changes when enough has moved in them.

Every move of a task leaves an old version of its row and old index entries behind, and claims read past those until
they are cleared away. Autovacuum looks once a minute; a busy store makes a million of them in that time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import psycopg
from psycopg import AsyncConnection

from pitboss.model.errors import PitbossError

# Claims between two sweeps. Chosen, not tuned: with it, a store that has just done a million tasks is as fast as new.
ENOUGH = 100_000
_TABLES = ("tasks", "resources", "uses")


class Broom:
    """Counts what this engine claims. One sweep at a time over all engines of a store, in the background.

    `pooled` tells whether a pooler stands between us and the server: then a setting would stay with a connection that
    is somebody else's next, and sweeping is left to autovacuum.
    """

    def __init__(
        self,
        schema: str,
        connect: Callable[[], Awaitable[AsyncConnection[tuple[object, ...]]]],
        pooled: Callable[[], bool],
    ) -> None:
        self._schema, self._connect, self._pooled = schema, connect, pooled
        self._moved = 0
        self._sweeping: asyncio.Task[None] | None = None
        self._allowed = True

    def moved(self, count: int) -> None:
        """So many tasks were claimed; sweeps if it is time."""
        self._moved += count
        idle = self._sweeping is None or self._sweeping.done()
        if self._moved >= ENOUGH and idle and self._allowed and not self._pooled():
            self._moved = 0
            self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def _sweep(self) -> None:
        try:
            connection = await self._connect()
        except (psycopg.Error, PitbossError):
            return
        try:
            await self._vacuum(connection)
        except psycopg.errors.InsufficientPrivilege:
            self._allowed = False  # not our table: autovacuum has to do
        except psycopg.Error:
            return  # it was in somebody's way, or the server is going down; there will be another time
        finally:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    async def _vacuum(self, connection: AsyncConnection[tuple[object, ...]]) -> None:
        await connection.execute(b"SET statement_timeout = 0")
        # Held until the connection closes.
        lock = await connection.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (f"pitboss:broom:{self._schema}",))
        row = await lock.fetchone()
        if row is not None and row[0]:
            tables = ", ".join(f"{self._schema}.{name}" for name in _TABLES)
            await connection.execute(f"VACUUM (TRUNCATE false) {tables}".encode())
