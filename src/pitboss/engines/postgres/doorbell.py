"""The doorbell: LISTEN on a connection of its own, where that works; else waiters look again every half second.

A connection that hears nothing may be dead, so the doorbell rings itself now and then, and listens again on a new
connection when it does not hear that. It then wakes all waiters once, as it may have missed rings.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from pitboss.engines.postgres.put import payload
from pitboss.engines.postgres.script import Row
from pitboss.model.errors import PitbossError

ANY = "*"
_SELF = "!"
_POLL = 0.5
_PROBE_EVERY = 15.0
_PROBE_WITHIN = 1.0
_REST = 0.005
_LISTEN_AGAIN = 0.2
_TRY_AGAIN = 60.0


class Doorbell:
    """The queues that were rung since the last wait, and the waiters."""

    def __init__(
        self,
        channel: str,
        connect: Callable[[], Awaitable[AsyncConnection[Row]]],
        notify: Callable[[str], Awaitable[None]],
    ) -> None:
        self._channel, self._connect, self._notify = channel, connect, notify
        self._probe_every, self._try_again = _PROBE_EVERY, _TRY_AGAIN
        self.hears = False
        self._rung: set[str] = set()
        self._waiters: set[asyncio.Event] = set()
        self._listener: asyncio.Task[None] | None = None
        self._later: asyncio.Task[None] | None = None
        self._unsent: set[str] = set()
        self._last_sent = 0.0

    async def open(self) -> None:
        self._listener = asyncio.create_task(self._listen(await self._listening()), name="pitboss doorbell")
        # A task that is cancelled before its first step would never close the connection: let it take that step.
        await asyncio.sleep(0)

    async def close(self) -> None:
        if self._later is not None:
            await self._later
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        self.ring([ANY])

    def ring(self, queues: Iterable[str]) -> None:
        self._rung.update(queues)
        for event in self._waiters:
            event.set()

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        event = asyncio.Event()
        self._waiters.add(event)
        limit = timeout if self.hears else min(timeout, _POLL)
        try:
            async with asyncio.timeout(limit):
                while not self._heard(queues):
                    event.clear()
                    await event.wait()
                return True
        except TimeoutError:
            return limit < timeout
        finally:
            self._waiters.discard(event)

    def may_ring_now(self) -> bool:
        """Whether a put may ring with its own commit. PostgreSQL lets commits that notify pass one at a time: small
        puts in a row ring together, a little later."""
        now = asyncio.get_running_loop().time()
        if now - self._last_sent < _REST:
            return False
        self._last_sent = now
        return True

    def ring_soon(self, queues: Iterable[str]) -> None:
        self._unsent.update(queues)
        if self._unsent and self._later is None:
            self._later = asyncio.create_task(self._send_later(), name="pitboss ring")

    async def _send_later(self) -> None:
        try:
            while self._unsent:
                await asyncio.sleep(_REST)
                queues, self._unsent = sorted(self._unsent), set()
                self._last_sent = asyncio.get_running_loop().time()
                # Only a hint: waiters that are not rung look by themselves before long.
                with suppress(PitbossError):
                    await self._notify(payload(queues))
        finally:
            self._later = None

    def _heard(self, queues: Sequence[str] | None) -> bool:
        if ANY in self._rung:
            self._rung.clear()
            return True
        heard = set(self._rung) if queues is None else self._rung.intersection(queues)
        self._rung -= heard
        return bool(heard)

    async def _listening(self) -> AsyncConnection[Row] | None:
        """A connection that hears itself ring; None if it does not, as behind some poolers."""
        connection = await self._connect()
        try:
            await connection.execute(SQL("LISTEN {}").format(Identifier(self._channel)))
            if await self._hears_itself(connection):
                self.hears = True
                return connection
            with suppress(psycopg.Error):
                await connection.execute("UNLISTEN *")
        except BaseException:
            await connection.close()
            raise
        await connection.close()
        return None

    async def _hears_itself(self, connection: AsyncConnection[Row]) -> bool:
        await self._notify(_SELF)
        loop = asyncio.get_running_loop()
        until, heard = loop.time() + _PROBE_WITHIN, False
        while not heard and (left := until - loop.time()) > 0:
            # Pass on what came with our own ring too.
            async for notice in connection.notifies(timeout=left, stop_after=1):
                heard = self._take(notice.payload) or heard
        return heard

    def _take(self, said: str) -> bool:
        """Note a ring; True if it was our own probe."""
        if said == _SELF:
            return True
        self.ring(said.split(","))
        return False

    async def _listen(self, connection: AsyncConnection[Row] | None) -> None:
        while True:
            pause = self._try_again
            if connection is not None:
                await self._follow(connection)
                self.ring([ANY])
                pause = _LISTEN_AGAIN
            await asyncio.sleep(pause)
            connection = await self._listening_at_last()
            if connection is not None:
                self.ring([ANY])

    async def _listening_at_last(self) -> AsyncConnection[Row] | None:
        """As `_listening`, however long the server is away."""
        while True:
            try:
                return await self._listening()
            except (psycopg.Error, PitbossError, OSError):
                await asyncio.sleep(_LISTEN_AGAIN)

    async def _follow(self, connection: AsyncConnection[Row]) -> None:
        """Pass on what is heard, until the connection breaks or no longer hears its own ring."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                until = loop.time() + self._probe_every
                while (left := until - loop.time()) > 0 and await _readable(connection.fileno(), left):
                    async for notice in connection.notifies(timeout=0):
                        self._take(notice.payload)
                if not await self._hears_itself(connection):
                    return
        except (psycopg.Error, PitbossError, OSError):
            return
        finally:
            self.hears = False
            await connection.close()


async def _readable(file: int, timeout: float) -> bool:
    """Whether there is something to read before the time-out. The driver's own wait for notices wakes ten times a
    second to check whether it should go on."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        async with asyncio.timeout(timeout):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(file)
    return True
