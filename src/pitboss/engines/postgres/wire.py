"""What is said on one connection: several statements in one round trip.

The driver's cursors ask one thing at a time, and its pipelines take more time than the round trips that they save
(docs/decisions/0018). So statements travel by the driver's own wrapper of libpq, in libpq's pipelines; values and rows
are converted by the driver as ever.
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
# All that the engine ever says, so that no hot statement is planned anew.
_MOST_PREPARED = 500
_Key = tuple[bytes, tuple[int, ...]]


class _Compiled(NamedTuple):
    """A statement as the server reads it, and the names of the values for its places."""

    text: bytes
    names: tuple[str, ...]


class _Made(NamedTuple):
    """A statement with its values as they travel. `lasts`: it is worth preparing."""

    text: bytes
    values: Sequence[Buffer | None]
    types: tuple[int, ...]
    formats: Sequence[int]
    lasts: bool


class Wire:
    """A connection and what is prepared on it. For one user at a time.

    Whoever is cancelled, or whose connection breaks, leaves it in the middle of something: its transaction status says
    so, and it is to be closed.
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
        """The script's answer. A statement that is waited for, with what is said beside it, is a transaction."""
        self._waiting = []
        self._listen()
        try:
            answer = await self._run(script)
            if self._waiting:
                await self._say(self._waiting)
            return answer
        finally:
            self._rest()

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
            await self._say([*self._waiting, COMMIT])
        except BaseException:
            await self._undo()
            raise
        finally:
            self._rest()
        return answer

    def _listen(self) -> None:
        self._file = self._server.socket
        asyncio.get_running_loop().add_reader(self._file, self._ready.set)

    def _rest(self) -> None:
        """Not to listen while nobody waits: a server that says something then would keep the loop busy. If the
        connection broke, its number may be another one's the next moment."""
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)
            self._file = -1

    async def _run(self, script: Script[T]) -> T:
        """The answer; what nobody waits for may be waiting still."""
        try:
            ask = next(script)
            while True:
                rows: list[Row] = []
                if ask is not ALL:
                    self._waiting.append(ask)
                if ask.later is None and self._waiting:
                    asks, self._waiting = self._waiting, []
                    said = self._say(asks)
                    rows = await (said if ask.meanwhile is None else beside(said, ask.meanwhile))
                ask = script.send(rows)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def _undo(self) -> None:
        if self._server.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            # A connection that cannot even do that is closed by whoever borrowed it, which undoes it too.
            with suppress(psycopg.Error):
                await self._say([ROLLBACK])

    async def _say(self, asks: Sequence[Ask]) -> list[Row]:
        """The rows of the last one."""
        if asks[-1].values is None:
            return await self._say_plainly(asks)
        # A value that cannot be converted is found before anything is sent.
        made = [self._made(ask) for ask in asks]
        try:
            self._server.enter_pipeline_mode()
            keys = [key for one in made for key in self._send(one)]
        except BaseException:
            # Such as a message that is too long: what was sent before it cannot be taken back.
            self._rest()
            self._server.finish()
            raise
        results = await self._hear()
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

    async def _say_plainly(self, asks: Sequence[Ask]) -> list[Row]:
        """Several statements in one text can only be said by themselves."""
        if asks[:-1]:
            await self._say(asks[:-1])
        # The driver listens by itself.
        self._rest()
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
        # Texts with values by name are few, and said again and again; the others are made of what somebody looks for.
        lasts = self.prepare and isinstance(ask.values, Mapping) and len(self._prepared) < _MOST_PREPARED
        return _Made(text, given, self._convert.types or (), self._convert.formats or (), lasts)

    def _send(self, made: _Made) -> list[_Key | None]:
        """What the results will be for: a key that is to be prepared, or None for the statement itself."""
        key = made.text, made.types
        name = self._prepared.get(key)
        if name is None and not made.lasts:
            self._server.send_query_params(made.text, made.values, made.types, made.formats)
            return [None]
        keys: list[_Key | None] = [None]
        if name is None:
            # The name says what it stands for: behind a pooler somebody else's must not be taken for it.
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

    async def _hear(self) -> list[PGresult]:
        """The results of all that was sent, up to the first failure and beyond it."""
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
            self._rest()
            # What the server said before it went says more.
            for result in results:
                if result.status in _FAILED:
                    raise error_from_result(result, self.connection.info.encoding) from None
            raise
        server.exit_pipeline_mode()
        return results

    async def _writable(self) -> None:
        """Wait until more can be sent, or there is something to read: a server that answers takes nothing more."""
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
    """Places are numbered: those of one name share a number."""
    names: dict[str, int] = {}

    def number(match: "re.Match[str]") -> str:
        if match[2] == "%":
            return "%"
        name = match[1] or str(len(names))
        return f"${names.setdefault(name, len(names) + 1)}"

    return _Compiled(_PLACE.sub(number, text).encode(), tuple(names))
