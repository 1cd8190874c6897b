"""Connections to one server: a few, kept open, each call within a time limit.

Not the driver's pool, which hands out dead connections, answers an outage with a bare time-out, and waits out its own
back-off when the server is back (docs/decisions/0007). Here a call notices a dead connection before it sends anything,
and connects by itself.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from select import POLLIN, poll
from typing import Any

import psycopg
from psycopg import AsyncConnection, conninfo

from pitboss.engines.postgres.faults import (
    BREAKS,
    PREPARED_GONE,
    RETRIED,
    ended,
    is_refused_option,
    may_pass,
    translated,
    unreachable,
    unstorable,
)
from pitboss.engines.postgres.pipeline import Pipeline
from pitboss.engines.postgres.script import Ask, Row, Script, T, adapted
from pitboss.engines.postgres.server_clock import STEPPED, ServerClock
from pitboss.model.errors import StoreUnavailable

_RETRIES = 5
_CONNECT_SECONDS = 3.0
_PAUSE = 0.05
_LONGEST_PAUSE = 0.25
_KEEPALIVE: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# Hot statements reach rows by index or by place only. A plan made while the tables were empty, or with statistics
# that are wrong, may otherwise read whole tables, and is kept: that cost a factor of 80 in a prototype.
STEADY_PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
# Lists are read by an index too, and no further than needed. A scan of the table, or of all tasks by id, looks cheap if
# many tasks seem to match, but may find the first one at its end. If every page costs the same, the narrower index is
# always cheaper.
READING_PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "random_page_cost": "1",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}


class Connections:
    """Up to `size` connections with the same settings. Belongs to the event loop that it is first used in."""

    def __init__(self, dsn: str, *, size: int, limit: float, settings: dict[str, str], clock: ServerClock) -> None:
        self._dsn, self._clock = dsn, clock
        self.limit = limit
        self._settings = {
            **settings,
            "statement_timeout": f"{limit * 0.8:.3f}s",
            "lock_timeout": f"{limit * 0.5:.3f}s",
            # A process that is stopped in the middle of a transaction, or whose host is gone, would keep its locks for
            # as long as the server waits for it: hours. No call of a live one lasts longer than this.
            "idle_in_transaction_session_timeout": f"{limit:.3f}s",
        }
        self._idle: list[Pipeline] = []
        self._room = asyncio.Semaphore(size)
        self._prepare = True
        # Settings go with the connection. A pooler between us and the server refuses or drops them: then every
        # call sets them for its own transaction.
        self._by_transaction = False
        self._closed = False
        self.trouble: Callable[[StoreUnavailable], None] = lambda _error: None

    @property
    def pooled(self) -> bool:
        """Whether a pooler was found between us and the server."""
        return self._by_transaction

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for pipeline in idle:
            await pipeline.connection.close()

    async def call(
        self,
        make: Callable[[], Script[T]],
        *,
        transaction: bool = False,
        before_commit: Callable[[], None] | None = None,
    ) -> T:
        """Run a script, alone or in a transaction of its own. Deadlocks and the like are tried again."""
        for attempt in range(_RETRIES):
            try:
                if self._clock.needs_look():
                    await self._look_once()
                async with self._borrowed() as pipeline:
                    if transaction or self._by_transaction:
                        return await pipeline.transact(make(), first=self._first(), before_commit=before_commit)
                    return await pipeline.run(make())
            except psycopg.Error as error:
                if not await self._may_repeat(error) or attempt + 1 == _RETRIES:
                    raise self._noted(translated(error)) from error
            except UnicodeEncodeError as error:
                raise unstorable(str(error)) from error
        raise AssertionError

    async def _look_once(self) -> None:
        """Of the calls at one time, one looks. The others wait for it only if they would be refused until then."""
        clock = self._clock
        if clock.looking is None:
            clock.looking = ended = asyncio.Event()
            try:
                await self.look_at_clock()
            finally:
                clock.looking = None
                ended.set()
        elif clock.was_refused:
            await clock.looking.wait()

    async def look_at_clock(self) -> None:
        async with self._borrowed() as pipeline:
            await pipeline.transact(self._clock.look(), first=self._first())

    async def connect(self) -> AsyncConnection[Row]:
        """A connection of its own, outside the pool."""
        return (await self._connect_patiently()).connection

    async def probe(self) -> None:
        """Connect anew, once. A server that takes no writes does not count as back."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                pipeline = await self._connect()
                try:
                    cursor = await pipeline.connection.execute(b"SHOW transaction_read_only", prepare=False)
                    row = await cursor.fetchone()
                finally:
                    await pipeline.connection.close()
        except psycopg.Error as error:
            raise unreachable(self._dsn, error) from error
        except TimeoutError as error:
            raise unreachable(self._dsn, psycopg.OperationalError("it does not answer")) from error
        if row is None or row[0] != "off":
            raise unreachable(self._dsn, psycopg.OperationalError("it takes no writes"))

    def _noted(self, error: Exception) -> Exception:
        if isinstance(error, StoreUnavailable):
            self.trouble(error)
        return error

    def _first(self) -> list[Ask]:
        """What every transaction must begin with."""
        if not self._by_transaction:
            return []
        texts = ", ".join("set_config(%s, %s, true)" for _ in self._settings)
        return [Ask(f"SELECT {texts}", [word for setting in self._settings.items() for word in setting])]

    async def _may_repeat(self, error: psycopg.Error) -> bool:
        if error.sqlstate in PREPARED_GONE and self._prepare:
            self._prepare = False
            idle, self._idle = self._idle, []
            for pipeline in idle:
                await pipeline.connection.close()
            return True
        if error.diag.sqlstate == STEPPED:
            self._clock.refused()
            return True
        return error.sqlstate in RETRIED

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[Pipeline]:
        """A live connection for one call. When its time is up the socket is shut, so that nothing waits for ever."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limit
        async with _in_turn(self._room, self.limit):
            pipeline = self._live_idle() or await self._connect_patiently()
            timer = loop.call_at(deadline, _cut, pipeline.connection)
            try:
                yield pipeline
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) or getattr(error, "sqlstate", None) in BREAKS:
                    _cut(pipeline.connection)
                raise
            finally:
                timer.cancel()
                await self._give_back(pipeline)

    def _live_idle(self) -> Pipeline | None:
        newest = True
        while self._idle:
            pipeline = self._idle.pop()
            if not _has_died(pipeline.connection):
                return pipeline
            if newest:
                # The one that was used last. Others may have been closed because they were idle for long.
                self._noted(ended())
            newest = False
        return None

    async def _give_back(self, pipeline: Pipeline) -> None:
        if pipeline.idle and not self._closed and pipeline.prepare == self._prepare:
            self._idle.append(pipeline)
        else:
            await pipeline.connection.close()

    async def _connect_patiently(self) -> Pipeline:
        """Connect. Wait out a short outage, such as a restart of the server: nothing was sent yet."""
        if self._closed:
            raise StoreUnavailable("the engine is closed", why="close() was called", fix="open a new engine")
        loop = asyncio.get_running_loop()
        give_up = loop.time() + min(_CONNECT_SECONDS, self.limit)
        pause = _PAUSE
        while True:
            try:
                return await self._connect()
            except psycopg.OperationalError as error:
                if is_refused_option(error) and not self._by_transaction:
                    self._settle_for_transactions()
                    continue
                self._noted(unreachable(self._dsn, error))
                if loop.time() + pause > give_up or not may_pass(error):
                    raise unreachable(self._dsn, error) from error
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _connect(self) -> Pipeline:
        options = conninfo.conninfo_to_dict(self._dsn)
        extra: dict[str, Any] = {name: value for name, value in _KEEPALIVE.items() if name not in options}
        extra.setdefault("connect_timeout", options.get("connect_timeout", 3))
        if not self._by_transaction:
            ours = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
            extra["options"] = f"{options.get('options') or ''} {ours}".strip()
        extra.setdefault("application_name", options.get("application_name", "pitboss"))
        connection = await AsyncConnection.connect(self._dsn, autocommit=True, prepare_threshold=None, **extra)
        adapted(connection.adapters)
        try:
            if not self._by_transaction:
                await self._check_settings(connection)
        except BaseException:
            # The server went down right after it accepted the connection: only we can close it.
            await connection.close()
            raise
        return Pipeline(connection, prepare=self._prepare)

    async def _check_settings(self, connection: AsyncConnection[Row]) -> None:
        cursor = await connection.execute(b"SHOW lock_timeout", prepare=False)
        row = await cursor.fetchone()
        wanted = self._settings["lock_timeout"]
        if row is None or _seconds(row[0]) != _seconds(wanted):
            self._settle_for_transactions()

    def _settle_for_transactions(self) -> None:
        self._by_transaction = True
        self._prepare = False


@asynccontextmanager
async def _in_turn(room: asyncio.Semaphore, limit: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit):
            await room.acquire()
    except TimeoutError:
        raise StoreUnavailable(
            f"no connection became free within {limit:g} s",
            why="all connections of this engine were busy with other calls",
            fix="make fewer calls at once, or give the engine more connections",
        ) from None
    try:
        yield
    finally:
        room.release()


def _has_died(connection: AsyncConnection[Row]) -> bool:
    """An idle connection that has something to read was ended by the server, or cut."""
    if connection.closed:
        return True
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    if not waiting.poll(0):
        return False
    with suppress(psycopg.Error):
        connection.pgconn.consume_input()
        if not waiting.poll(0) and not connection.closed:
            return False
    connection.pgconn.finish()
    return True


def _cut(connection: AsyncConnection[Row]) -> None:
    if connection.closed:
        return
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


def _seconds(text: str) -> float:
    units = (("ms", 0.001), ("min", 60.0), ("s", 1.0))
    for unit, factor in units:
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text) * 0.001
