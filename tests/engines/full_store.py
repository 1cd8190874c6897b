"""A store with many tasks, written as rows, and what its reads cost: steps of SQLite's machine, pages of PostgreSQL.

Of some tasks there are always as many: those that the filters of the tests look for. Most of them are older than all
others, so that a read that goes through the others is noticed.
"""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pitboss.client.alert_facts import read_alert_facts
from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.postgres.connections import READING_PLANS
from pitboss.engines.postgres.script import Ask, Script, adapted
from pitboss.engines.protocol import FullStore, Store
from pitboss.engines.sqlite import SqliteEngine
from pitboss.engines.sqlite.connection import connect_reader
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.filter import parsed
from pitboss.model.ids import make_id
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.states import State
from pitboss.operate.failures import failure_groups
from pitboss.operate.lookup import find_task
from pitboss.operate.overview import read_overview
from pitboss.operate.queues import read_queue, read_queues
from pitboss.operate.status import read_status
from pitboss.operate.why import explain
from pitboss.simulate.clock import START

NOW = START
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
BATCH = "0198c1a0-0000-7000-8000-00000000000b"
QUEUES = ("mail", "bulk", "rare")
HANDLERS = ("send", "load", "rare")
Read = Callable[[FullStore], Awaitable[object]]
Row = dict[str, Any]
_DEFAULTS: Row = {
    "priority": 0,
    "run_at": None,
    "started_at": None,
    "finished_at": None,
    "attempts": 0,
    "reason": None,
    "session": None,
    "outcome": None,
    "fingerprint": None,
    "error": None,
    "batch": None,
    "resource": None,
    "order_key": None,
    "partition": None,
}
_COLUMNS = ("id", "handler", "queue", "state", "params", "created_at", *_DEFAULTS)
_ERROR = {"category": "net", "message": "connection reset", "type": "ConnectionError"}


class Rows:
    """Rows of tasks, oldest first. `marks` are ids of some of them."""

    def __init__(self, stored: int) -> None:
        self._stored, self._number = stored, count()
        self.marks: dict[str, str] = {}

    def __iter__(self) -> Iterator[Row]:
        yield from self._rare()
        for n in range(self._stored):
            moment = NOW - 10 * DAY + n * (9 * DAY) // self._stored
            yield self._ended(moment, State.CANCELLED if n % 50 == 7 else State.COMPLETED, **_place(n))
            if n % 10 == 5:
                yield self._ended(moment, State.FAILED, fingerprint=f"{n // 10 % 5:012}", **_place(n))
                yield self._task(moment, State.PENDING, priority=n // 10 % 3, **_place(n))
        yield from self._lately()

    def _rare(self) -> Iterator[Row]:
        moment, rare = NOW - 20 * DAY, {"queue": "rare", "handler": "rare"}
        for _ in range(12):
            yield self._ended(moment, State.COMPLETED, resource="proxies/rare", partition="rare", **rare)
            yield self._ended(moment, State.FAILED, fingerprint="rare", **rare)
            yield self._task(moment, State.PENDING, **rare)
            yield self._task(moment, State.SCHEDULED, run_at=NOW + DAY, **rare)
            yield self._task(moment, State.HELD, reason="handler", handler="gone", queue="mail")
            yield self._ended(moment, State.COMPLETED, batch=BATCH)
            yield self._ended(moment, State.FAILED, batch=BATCH, fingerprint="item")
        for _ in range(12):
            # Items that were drawn, and came back.
            yield self._task(moment, State.PENDING, batch=BATCH)
        for place in range(4):
            held: Row = {"state": State.HELD, "reason": "order"} if place else {"state": State.PENDING}
            row = self._task(moment, **held, order_key="k")
            self.marks["first" if not place else "in order"] = row["id"]
            yield row
        pending = self._task(moment, State.PENDING, queue="mail")
        self.marks["pending"] = pending["id"]
        yield pending

    def _lately(self) -> Iterator[Row]:
        for n in range(20):
            yield self._ended(NOW - 600 * SECOND + n * SECOND, State.COMPLETED)
            yield self._task(NOW - SECOND, State.RUNNING, started_at=NOW - SECOND, session=1)
        failed = self._ended(NOW - 300 * SECOND, State.FAILED, fingerprint="late")
        self.marks["failed"] = failed["id"]
        yield failed

    def _ended(self, moment: int, state: State, **fields: Any) -> Row:
        ran = {"started_at": moment, "finished_at": moment + SECOND, "outcome": state.value, "attempts": 1}
        if state is State.FAILED:
            ran["error"] = json.dumps(_ERROR | {"fingerprint": fields["fingerprint"]})
        return self._task(moment, state, **ran, **fields)

    def _task(self, moment: int, state: State, **fields: Any) -> Row:
        number = next(self._number)
        made = {"id": make_id(moment // 1000, number % 4096, number), "state": state.value, "created_at": moment}
        return {**_DEFAULTS, "queue": "bulk", "handler": "load", "params": f'{{"n":{number}}}', **fields, **made}


def _place(n: int) -> Row:
    return {"queue": "mail", "handler": "send"} if n % 3 else {}


async def fill(store: Store, stored: int) -> dict[str, str]:
    """As many finished tasks, a tenth of that failed and a tenth pending ones, and the few that tests look for; the
    ids of some of these."""
    for queue in QUEUES:
        await store.change_queue(queue, QueueChange())
    await store.register([HandlerInfo(name=name) for name in HANDLERS])
    assert isinstance(store, FullStore)
    await store.create_batch(NewBatch(id=BATCH), [])
    rows = Rows(stored)
    values = ([row[column] for column in _COLUMNS] for row in rows)
    if isinstance(store, SqliteEngine):
        _fill_sqlite(store.path, values)
    elif isinstance(store, PostgresEngine):
        _fill_postgres(store, values)
    return rows.marks


def _fill_sqlite(path: Path, values: Iterator[list[Any]]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    places = ", ".join("?" * len(_COLUMNS))
    connection.executemany(f"INSERT INTO pitboss_tasks ({', '.join(_COLUMNS)}) VALUES ({places})", values)
    counted = "SELECT queue, state, count(*) FROM pitboss_tasks GROUP BY queue, state"
    connection.execute(f"INSERT OR REPLACE INTO pitboss_counts {counted}")
    connection.execute(
        "INSERT INTO pitboss_order_heads SELECT order_key, min(id) FROM pitboss_tasks WHERE order_key = 'k'"
    )
    connection.execute("COMMIT")
    connection.close()


def _fill_postgres(store: PostgresEngine, values: Iterator[list[Any]]) -> None:
    schema = store._sql.quoted
    with psycopg.connect(store._dsn, autocommit=True) as connection:
        copy = f"COPY {schema}.tasks ({', '.join(_COLUMNS)}) FROM STDIN"
        with connection.cursor().copy(copy.encode()) as rows:
            for row in values:
                rows.write_row(row)
        for statement in (
            f"INSERT INTO {schema}.counts SELECT queue, state, count(*) FROM {schema}.tasks GROUP BY queue, state",
            f"INSERT INTO {schema}.order_heads SELECT order_key, min(id::text)::uuid FROM {schema}.tasks"
            " WHERE order_key IS NOT NULL GROUP BY order_key",
            f"VACUUM ANALYZE {schema}.tasks",
        ):
            connection.execute(statement.encode())


LISTED = (
    "",
    "state:pending",
    "state:failed",
    "state:completed",
    "state:running",
    "state:held",
    "state:scheduled",
    "state:cancelled",
    "state:failed queue:rare",
    "state:pending queue:rare",
    "queue:rare",
    "queue:mail",
    "task:rare state:failed",
    "resource:proxies/rare",
    "partition:rare",
    f"batch:{BATCH}",
    f"batch:{BATCH} state:failed",
    "state:failed fingerprint:rare",
    "state:failed fingerprint:ra*",
    "state:failed -fingerprint:0*",
    "state:held reason:handler",
    "finished:<1h",
    "state:completed finished:<1h",
    "state:failed,cancelled finished:<1h -queue:rare",
    "age:>15d",
    "age:<1h",
    "state:pending age:>15d",
    "state:pending priority:1",
    "-state:completed,failed,pending,cancelled",
    "order:k state:pending,held",
)
# These look at a number of tasks, and say so.
LOOKED_THROUGH = (
    "args.n:none",
    "task:none",
    "nowhere",
    "-task:send,load,rare,gone",
    "tag:none",
    "worker:none",
    "ran:>1h",
    "state:completed tag:none",
)


def reads(marks: dict[str, str]) -> dict[str, Read]:
    """Everything that a person looks at, by name."""
    found: dict[str, Read] = {
        "status": lambda store: read_status(store, NOW),
        "queues": lambda store: store.queues(),
        "queues with forecasts": lambda store: read_queues(store, NOW),
        "one queue with its forecast": lambda store: read_queue(store, "mail", NOW),
        "health": lambda store: read_overview(store, NOW),
        "alerts": read_alert_facts,
        "groups": lambda store: failure_groups(store, parsed("")),
        "groups of a batch": lambda store: failure_groups(store, parsed(f"batch:{BATCH}")),
        "show by the beginning of the id": lambda store: find_task(store, marks["first"][:20]),
    }
    found |= {f"why: {name}": _why(task) for name, task in marks.items()}
    found |= {f"list: {text}": _listed(text) for text in LISTED}
    return found | {
        f"count: {text}": _counted(text) for text in ("", "state:failed", "finished:<1h", "queue:rare tag:x")
    }


def _why(task: str) -> Read:
    return lambda store: explain(store, task, NOW)


def _listed(text: str) -> Read:
    return lambda store: store.find(parsed(text), limit=20)


def _counted(text: str) -> Read:
    return lambda store: store.count(parsed(text))


class Cost:
    """The steps or pages of all reads so far."""

    def __init__(self) -> None:
        self.total = 0

    async def of(self, read: Read, store: FullStore) -> int:
        before = self.total
        await read(store)
        return self.total - before


@contextmanager
def sqlite_steps(patch: pytest.MonkeyPatch, each: int = 1) -> Iterator[Cost]:
    """Steps of SQLite's machine, in readers that are opened within the block."""
    cost = Cost()

    def counted(path: Path) -> sqlite3.Connection:
        def step() -> int:
            cost.total += each
            return 0

        connection = connect_reader(path)
        connection.set_progress_handler(step, each)
        return connection

    patch.setattr("pitboss.engines.sqlite.readers.connect_reader", counted)
    yield cost


@contextmanager
def postgres_pages(patch: pytest.MonkeyPatch, store: PostgresEngine) -> Iterator[Cost]:
    """Pages that the statements of the reads touch, with the settings of the engine's own readers."""
    cost = Cost()
    with psycopg.connect(store._dsn, autocommit=True) as connection:
        adapted(connection.adapters)
        for name, value in READING_PLANS.items():
            connection.execute(f"SET {name} = {value}".encode())

        async def call(make: Callable[[], Script[Any]], **_: Any) -> Any:
            return _explained(connection, make(), cost)

        patch.setattr(store._reading, "call", call)
        yield cost


def _explained(connection: psycopg.Connection[Any], script: Generator[Ask, Any, Any], cost: Cost) -> Any:
    cursor = connection.cursor()
    try:
        ask = next(script)
        while True:
            cursor.execute(b"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + ask.sql.encode(), ask.values)
            ((plans,),) = cursor.fetchall()
            cost.total += plans[0]["Plan"]["Shared Hit Blocks"] + plans[0]["Plan"]["Shared Read Blocks"]
            cursor.execute(ask.sql.encode(), ask.values)
            ask = script.send(cursor.fetchall())
    except StopIteration as end:
        return end.value
