"""What is asked of the database, apart from how it is sent.

A script is a generator: it yields statements and receives their rows. So the same script runs on an async connection
of the engine's own and on a caller's connection, sync or async.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

from psycopg import AsyncCursor, Cursor
from psycopg.adapt import AdaptersMap
from psycopg.sql import Identifier
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import TextLoader

from pitboss.engines import statements
from pitboss.model.duration import Moment, Span

T = TypeVar("T")
# The moment that the server should find (None: any), and how far away from it the server's clock may be.
Expectation = Callable[[], tuple[Moment | None, Span]]
Row = tuple[Any, ...]
# The moment that the caller handed in, or else the one of the store's clock. The one row is read once per statement.
_NOW = """coalesce(
    %(now)s::bigint,
    (SELECT {schema}.steady_now(shift, %(expected)s::bigint, %(slack)s::bigint) FROM {schema}.clock WHERE one)
)"""
_PART = re.compile(r"\{(\w+)\}")
# Texts with such names are no statements: others contain them.
PARTS = ("_columns", "_condition", "_changes")


class Ask(NamedTuple):
    """One statement with its values; without values it may be several statements.

    `meanwhile` is work to do while the server is busy, in steps between which other tasks may run. With `later` the
    script goes on at once: the statement is sent with the next one that is awaited, or with the commit, and its rows
    are put there.
    """

    sql: str
    values: Mapping[str, object] | Sequence[object] | None = None
    meanwhile: Iterator[None] | None = None
    later: list[Row] | None = None

    def into(self, rows: list[Row]) -> "Ask":
        """The same, not awaited: its rows come later."""
        return self._replace(later=rows)

    def unheard(self) -> "Ask":
        """The same, not awaited, and its rows are dropped."""
        return self._replace(later=[])

    @property
    def prepare(self) -> bool | None:
        return None if self.values is not None else False


Script = Generator[Ask, list[Row], T]
# Barrier: send what waits, then await all rows.
ALL = Ask("")


class Again:
    """A script's answer: it has done nothing, and must run again after something else was done first.

    Its transaction is rolled back.
    """


async def run(cursor: AsyncCursor[Row], script: Script[T]) -> T:
    """On a cursor of a caller's connection, one statement after the other."""
    try:
        ask = next(script)
        while True:
            if ask is ALL:
                ask = script.send([])
                continue
            asked = cursor.execute(ask.sql.encode(), ask.values, prepare=ask.prepare)
            await (asked if ask.meanwhile is None else beside(asked, ask.meanwhile))
            ask = script.send(_answer(ask, await cursor.fetchall() if _has_rows(cursor) else []))
    except StopIteration as end:
        answer: T = end.value
        return answer


async def beside(asked: Coroutine[Any, Any, T], work: Iterator[None]) -> T:
    """Await the answer, and do the work meanwhile."""
    asking = asyncio.ensure_future(asked)
    try:
        # The statement is sent before the work begins, and between its steps.
        await asyncio.sleep(0)
        for _ in work:
            await asyncio.sleep(0)
    except BaseException:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        raise
    return await asking


def run_sync(cursor: Cursor[Row], script: Script[T]) -> T:
    try:
        ask = next(script)
        while True:
            if ask is ALL:
                ask = script.send([])
                continue
            cursor.execute(ask.sql.encode(), ask.values, prepare=ask.prepare)
            for _ in ask.meanwhile or ():
                pass
            ask = script.send(_answer(ask, cursor.fetchall() if _has_rows(cursor) else []))
    except StopIteration as end:
        answer: T = end.value
        return answer


def _answer(ask: Ask, rows: list[Row]) -> list[Row]:
    if ask.later is None:
        return rows
    ask.later.extend(rows)
    return []


def _has_rows(cursor: Cursor[Row] | AsyncCursor[Row]) -> bool:
    # Not `description`: the driver makes an object for every column to answer that.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def adapted(adapters: AdaptersMap) -> None:
    """Whole numbers are sent as bigint whatever their size, so that a statement is prepared once; ids stay texts."""
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_loader("uuid", TextLoader)


def _anything() -> tuple[None, Span]:
    return None, 0


class Statements:
    """The SQL files, written for one schema. No statement relies on a search path."""

    def __init__(self, schema: str, channel: str) -> None:
        self.schema, self.channel = schema, channel
        self.quoted = Identifier(schema).as_string()
        texts = {name: _compact(text) for name, text in statements.load(f"{__package__}.sql").items()}
        self._parts = {name: texts.pop(name) for name in list(texts) if name.endswith(PARTS)}
        self._parts |= {"now": _compact(_NOW), "schema": self.quoted}
        self.expectation: Expectation = _anything
        self._texts = {name: self._filled(text) for name, text in texts.items()}

    def ask(self, name: str, now: Moment | None = None, /, **values: object) -> Ask:
        return self.asked(self._texts[name], now, **values)

    def asked(self, text: str, now: Moment | None = None, /, **values: object) -> Ask:
        """A text made with `text`, with its values by name."""
        expected, slack = self.expectation()
        return Ask(text, {"now": now, "expected": expected, "slack": slack, "channel": self.channel, **values})

    def without_expectation(self) -> "Statements":
        """The same, for a caller's own transaction, in which no statement may be refused because of a clock."""
        plain = copy(self)
        plain.expectation = _anything
        return plain

    def text(self, name: str, **parts: str) -> str:
        """A statement with places for parts of SQL, such as a filter's condition."""
        text = self._texts[name]
        for place, part in parts.items():
            text = text.replace(f"{{{place}}}", part)
        return text

    def define(self, name: str, of: str, **parts: str) -> None:
        """Name a statement that is made as `text` makes it."""
        self._texts[name] = self._filled(self.text(of, **parts))

    def migrations(self) -> dict[str, str]:
        """The numbered changes of the schema, by name, in order."""
        found = statements.load(f"{__package__}.migrations")
        return {name: found[name].replace("{schema}", self.quoted) for name in sorted(found)}

    def _filled(self, text: str) -> str:
        parts = self._parts
        return _PART.sub(lambda match: self._filled(parts[match[1]]) if match[1] in parts else match[0], text)


def current(sql: Statements, now: Moment | None) -> Script[Moment]:
    """The moment that was handed in, or else the server's."""
    if now is not None:
        return now
    ((moment,),) = yield sql.ask("server_now")
    found: Moment = moment
    return found


def _compact(text: str) -> str:
    # On callers' connections the driver caches what it parsed only for texts up to 4,096 characters.
    lines = (line.strip() for line in text.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("--"))
