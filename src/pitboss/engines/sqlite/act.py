"""One write request inside the writer's transaction: its moment, its statements, and what follows from it."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from pitboss.engines.sqlite.rows import attempt_row
from pitboss.engines.statements import load
from pitboss.model.duration import Moment
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Attempt

T = TypeVar("T")
Row = Sequence[object]
# Rows are written by one statement for many: every step of a statement releases the interpreter lock, and behind a busy
# event loop each step may wait for a whole switch interval. It is also about twice as fast.
_BULKS = (256, 64, 16, 4, 2, 1)
_ENDED = frozenset(state.value for state in FINISHED)
_RUNNING = State.RUNNING.value
_KEPT_RUNS = 100
# By kind, queue and handler.
Flows = dict[tuple[str, str, str], int]


class Statements:
    """The SQL by name, and the texts for many rows made from it. One for each engine."""

    def __init__(self) -> None:
        self.by_name = load("pitboss.engines.sqlite.sql")
        self._bulk: dict[tuple[str, int], str] = {}

    def bulk(self, name: str, size: int) -> str:
        """The statement with its one row `VALUES (?, …)` repeated."""
        text = self._bulk.get((name, size))
        if text is None:
            head, found, rest = self.by_name[name].partition("VALUES (")
            inside, closing, tail = rest.partition(")")
            text = head + found + f"{inside}), (" * (size - 1) + inside + closing + tail
            self._bulk[name, size] = text
        return text


class Act:
    """Passed to everything that changes the store. `rings` are queues to wake after the commit.

    `touched` are batches of which an item has ended or stopped running, `lanes` those that may promote a batch. `flows`
    is what happened to tasks: nothing in an act reads it, so the writer writes it once for all acts of a transaction.
    """

    __slots__ = ("_connection", "_items", "_moves", "_sql", "_statements", "flows", "lanes", "now", "rings", "touched")

    def __init__(self, connection: sqlite3.Connection, statements: Statements, now: Moment) -> None:
        self._connection, self._statements, self._sql = connection, statements, statements.by_name
        self._moves: dict[tuple[str, str], int] = defaultdict(int)
        self._items: dict[tuple[str, str, str], int] = {}
        self.now = now
        self.flows: Flows = {}
        self.rings: set[str] = set()
        self.touched: dict[str, None] = {}
        self.lanes: set[str] = set()

    def run(self, name: str, *values: object) -> int:
        """Execute; how many rows it changed."""
        return self._cursor().execute(self._sql[name], values).rowcount

    def one(self, name: str, *values: object) -> tuple[object, ...] | None:
        row: tuple[object, ...] | None = self._cursor().execute(self._sql[name], values).fetchone()
        return row

    def rows(self, name: str, *values: object) -> sqlite3.Cursor:
        return self._cursor().execute(self._sql[name], values)

    def query(self, text: str, values: Iterable[object]) -> sqlite3.Cursor:
        return self._cursor().execute(text, tuple(values))

    def decoded(self, name: str, decoder: msgspec.json.Decoder[T], *values: object) -> T:
        """The rows of a statement that answers with one JSON text: one step, however many rows."""
        return decoder.decode(self._cursor().execute(self._sql[name], values).fetchone()[0])

    def bulk(self, name: str, rows: Sequence[Row]) -> int:
        """Execute a statement of the form `… VALUES (?, …) …` for all the rows; how many it changed."""
        values = [value for row in rows for value in row]
        return self.bulk_values(name, (), values, len(rows[0]) if rows else 1)

    def bulk_values(self, name: str, shared: tuple[object, ...], values: list[object], width: int) -> int:
        """The same for rows of this width, all values in one list; `shared` are the values of ?1, ?2 and so on."""
        start, changed = 0, 0
        for size in _BULKS:
            while len(values) - start >= size * width:
                portion = [*shared, *values[start : start + size * width]]
                changed += self._cursor().execute(self._statements.bulk(name, size), portion).rowcount
                start += size * width
        return changed

    def moved(self, queue: str, source: str | None, target: str | None, n: int = 1, batch: str | None = None) -> None:
        """Count tasks of the queue that went from one state to another; None is outside the store."""
        if source is not None:
            self._moves[queue, source] -= n
        if target is not None:
            self._moves[queue, target] += n
        if batch is not None:
            self._moved_item(batch, queue, source, target, n)

    def write_counts(self) -> None:
        """Last, because nothing in an act reads the counts that it has itself changed."""
        rows = [(queue, state, n) for (queue, state), n in self._moves.items() if n]
        self._moves.clear()
        if rows:
            self.bulk("count_add", rows)
        if self._items:
            items = [(*place, n) for place, n in self._items.items() if n]
            self._items.clear()
            self.bulk("batch_count_add", items)

    def happened(self, kind: str, queue: str, handler: str, n: int = 1) -> None:
        """Count what happened to tasks (`figures.KINDS`)."""
        key = (kind, queue, handler)
        self.flows[key] = self.flows.get(key, 0) + n

    def record(self, runs: Sequence[tuple[str, Attempt]]) -> None:
        """Add runs that did not finish their tasks to the tasks' histories."""
        self.bulk("attempt_record", [attempt_row(task, run) for task, run in runs])
        for task, run in runs:
            # A claim is recorded at most once, so only a high claim number can mean a long history.
            if run.claim > _KEPT_RUNS:
                self.run("attempt_forget", task, _KEPT_RUNS)

    def savepoint(self) -> None:
        self._connection.execute("SAVEPOINT attempt")

    def release_savepoint(self) -> None:
        self._connection.execute("RELEASE attempt")

    def roll_back(self) -> None:
        """To the savepoint."""
        self._connection.execute("ROLLBACK TO attempt")
        self._connection.execute("RELEASE attempt")

    def _moved_item(self, batch: str, queue: str, source: str | None, target: str | None, n: int) -> None:
        for state, change in ((source, -n), (target, n)):
            if state is not None:
                self._items[batch, queue, state] = self._items.get((batch, queue, state), 0) + change
        if target in _ENDED or (source == _RUNNING and target is not None):
            self.touched[batch] = None

    def _cursor(self) -> sqlite3.Cursor:
        return self._connection.cursor()


def json_list(values: Iterable[str | int]) -> str:
    """A list as SQLite's json_each takes it."""
    return msgspec.json.encode(list(values)).decode()
