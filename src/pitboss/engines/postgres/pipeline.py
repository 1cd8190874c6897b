"""One connection that sends several statements in one round trip.

The driver's cursors send one statement at a time, and its pipelines take more time than the round trips that they save
(docs/decisions/0018). So statements go through the driver's own wrapper of libpq, in libpq's pipelines; the driver
converts values and rows as usual.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from pitboss.engines.postgres.script import ALL, Again, Ask, Row, Script, T, beside

BEGIN, COMMIT, ROLLBACK = Ask("BEGIN", {}), Ask("COMMIT", {}), Ask("ROLLBACK", {})
_PLACE = re.compile(r"%(?:\((\w+)\))?([s%])")
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)
# More than the engine has, so that no hot statement is planned again.
_MOST_PREPARED = 500
_Key = tuple[bytes, tuple[int, ...]]


class _Compiled(NamedTuple):
    """A statement as the server reads it, and the names of the values for its places."""

    text: bytes
    names: tuple[str, ...]


class _Made(NamedTuple):
    """A statement with its values as they are sent. `lasts`: it is worth preparing."""

    text: bytes
    values: Sequence[Buffer | None]
    types: tuple[int, ...]
    formats: Sequence[int]
    lasts: bool


class Pipeline:
    """A connection and what is prepared on it. For one call at a time.

    A call that is cancelled, or whose connection breaks, leaves it in the middle of a transaction. It is not `idle`
    then, and must be closed.
    """

    def __init__(self, connection: AsyncConnection[Row], *, prepare: bool) -> None:
        self.connection, self.prepare = connection, prepare
        self._server = connection.pgconn
        self._convert = Transformer(connection)
        self._prepared: dict[_Key, bytes] = {}
        self._waiting: list[Ask] = []
        self._ready = asyncio.Event()
        self._file = -1

    @property
    def idle(self) -> bool:
        return not self.connection.closed and self._server.transaction_status == TransactionStatus.IDLE

    async def run(self, script: Script[T]) -> T:
        """The script's answer. Each round trip is a transaction of its own."""
        self._waiting = []
        self._listen()
        try:
            answer = await self._run(script)
            if self._waiting:
                await self._send(self._waiting)
            return answer
        finally:
            self._stop_listening()

    async def transact(
        self, script: Script[T], *, first: Sequence[Ask] = (), before_commit: Callable[[], None] | None = None
    ) -> T:
        """The script's answer, in one transaction that begins with `first`."""
        self._waiting = [BEGIN, *first]
        self._listen()
        try:
            answer = await self._run(script)
            if isinstance(answer, Again):
                await self._undo()
                return answer
            if before_commit is not None:
                before_commit()
            await self._send([*self._waiting, COMMIT])
        except BaseException:
            await self._undo()
            raise
        finally:
            self._stop_listening()
        return answer

    def _listen(self) -> None:
        self._file = self._server.socket
        asyncio.get_running_loop().add_reader(self._file, self._ready.set)

    def _stop_listening(self) -> None:
        """Remove the reader while idle: a server that sends something then would keep the loop busy. And after a
        connection broke, its file number may soon belong to another one."""
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)
            self._file = -1

    async def _run(self, script: Script[T]) -> T:
        """The answer; statements that are not awaited may still wait to be sent."""
        try:
            ask = next(script)
            while True:
                rows: list[Row] = []
                if ask is not ALL:
                    self._waiting.append(ask)
                if ask.later is None and self._waiting:
                    asks, self._waiting = self._waiting, []
                    sent = self._send(asks)
                    rows = await (sent if ask.meanwhile is None else beside(sent, ask.meanwhile))
                ask = script.send(rows)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def _undo(self) -> None:
        if self._server.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            # If this fails, the pool closes the connection, which undoes the transaction too.
            with suppress(psycopg.Error):
                await self._send([ROLLBACK])

    async def _send(self, asks: Sequence[Ask]) -> list[Row]:
        """Send them in one round trip; the rows of the last one."""
        if asks[-1].values is None:
            return await self._send_text(asks)
        # A value that cannot be converted is found before anything is sent.
        made = [self._made(ask) for ask in asks]
        try:
            self._server.enter_pipeline_mode()
            keys = [key for one in made for key in self._enqueue(one)]
        except BaseException:
            # Such as a message that is too long. What was sent before it cannot be taken back.
            self._stop_listening()
            self._server.finish()
            raise
        results = await self._receive()
        self._forget_unprepared(keys, results)
        for result in results:
            if result.status in _FAILED:
                raise error_from_result(result, self.connection.info.encoding)
        answers = [result for key, result in zip(keys, results, strict=True) if key is None]
        rows: list[Row] = []
        for ask, answer in zip(asks, answers, strict=True):
            rows = self._rows(answer)
            if ask.later is not None:
                ask.later.extend(rows)
        return rows

    async def _send_text(self, asks: Sequence[Ask]) -> list[Row]:
        """A text with several statements must be sent alone."""
        if asks[:-1]:
            await self._send(asks[:-1])
        # The driver reads by itself.
        self._stop_listening()
        try:
            cursor = await self.connection.execute(asks[-1].sql.encode(), prepare=False)
            return await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []
        finally:
            if not self.connection.closed:
                self._listen()

    def _made(self, ask: Ask) -> _Made:
        text, names = _compiled(ask.sql)
        values: Sequence[object] = (
            [ask.values[name] for name in names] if isinstance(ask.values, Mapping) else ask.values or ()
        )
        given = self._convert.dump_sequence(values, [PyFormat.AUTO] * len(values))
        # Texts with values by name are few and come again; the others are made from filters.
        lasts = self.prepare and isinstance(ask.values, Mapping) and len(self._prepared) < _MOST_PREPARED
        return _Made(text, given, self._convert.types or (), self._convert.formats or (), lasts)

    def _enqueue(self, made: _Made) -> list[_Key | None]:
        """Queue a statement. Answers what its results are for: a key that is prepared, or None for the statement."""
        key = made.text, made.types
        name = self._prepared.get(key)
        if name is None and not made.lasts:
            self._server.send_query_params(made.text, made.values, made.types, made.formats)
            return [None]
        keys: list[_Key | None] = [None]
        if name is None:
            # Named for its text: behind a pooler it must not be taken for the statement of another client.
            sign = blake2b(b"%b %b" % (repr(made.types).encode(), made.text), digest_size=12).hexdigest()
            name = self._prepared[key] = f"pitboss_{sign}".encode()
            self._server.send_prepare(name, made.text, made.types)
            keys = [key, None]
        self._server.send_query_prepared(name, made.values, made.formats)
        return keys

    def _forget_unprepared(self, keys: list[_Key | None], results: list[PGresult]) -> None:
        for key, result in zip(keys, results, strict=False):
            if key is not None and result.status != ExecStatus.COMMAND_OK:
                self._prepared.pop(key, None)

    def _rows(self, result: PGresult) -> list[Row]:
        if not result.nfields:
            return []
        self._convert.set_pgresult(result)
        return self._convert.load_rows(0, result.ntuples, tuple)

    async def _receive(self) -> list[PGresult]:
        """The results of all that was sent, also those after a failure."""
        server = self._server
        server.pipeline_sync()
        results: list[PGresult] = []
        try:
            while server.flush():
                await self._writable()
            while True:
                while server.is_busy():
                    self._ready.clear()
                    await self._ready.wait()
                    server.consume_input()
                result = server.get_result()
                if result is None:
                    if server.status == ConnStatus.BAD:
                        raise psycopg.OperationalError("the connection is lost")
                elif result.status == ExecStatus.PIPELINE_SYNC:
                    break
                else:
                    results.append(result)
        except psycopg.Error:
            self._stop_listening()
            # What the server sent before the connection broke says more.
            for result in results:
                if result.status in _FAILED:
                    raise error_from_result(result, self.connection.info.encoding) from None
            raise
        server.exit_pipeline_mode()
        return results

    async def _writable(self) -> None:
        """Wait until more can be sent, or there is something to read: the server may not read while it answers."""
        loop = asyncio.get_running_loop()
        loop.add_writer(self._file, self._ready.set)
        try:
            self._ready.clear()
            await self._ready.wait()
        finally:
            loop.remove_writer(self._file)
        self._server.consume_input()


@lru_cache(maxsize=1000)
def _compiled(text: str) -> _Compiled:
    """Number the places: those of one name share a number."""
    names: dict[str, int] = {}

    def number(match: "re.Match[str]") -> str:
        if match[2] == "%":
            return "%"
        name = match[1] or str(len(names))
        return f"${names.setdefault(name, len(names) + 1)}"

    return _Compiled(_PLACE.sub(number, text).encode(), tuple(names))
