"""Fresh stores to measure on, and the same row changes in bare SQL."""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from pitboss import wiring
from pitboss.engines.protocol import Store
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo
from pitboss.model.task import NewTask
from tests.servers.postgres import PostgresServer

PARAMS = '{"n":12345,"text":"' + "x" * 60 + '"}'
ENGINES = ("sqlite", "postgres")


class Bare(Protocol):
    """The row changes of one table, with nothing around them: the speed of the store itself at this batch size."""

    def put(self, ids: list[str]) -> None: ...

    def claim(self, count: int) -> list[tuple[str, int]]: ...

    def settle(self, claimed: list[tuple[str, int]]) -> None: ...


class BareSqlite:
    """The task table's own row changes, a transaction each, on a store that Pitboss made (same indexes)."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._now = 1

    def put(self, ids: list[str]) -> None:
        rows = [(one, PARAMS) for one in ids]
        self._transaction(
            lambda do: do.executemany(
                "INSERT INTO pitboss_tasks (id, handler, queue, state, params, priority, created_at)"
                " VALUES (?, 'noop', 'bare', 'pending', ?, 0, 1)",
                rows,
            )
        )

    def claim(self, count: int) -> list[tuple[str, int]]:
        rows: list[tuple[str, int, str, str]] = self._transaction(
            lambda do: do.execute(
                "UPDATE pitboss_tasks SET state = 'running', session = 1, claim = claim + 1, started_at = 1"
                " WHERE id IN (SELECT id FROM pitboss_tasks WHERE state = 'pending' AND queue = 'bare'"
                " ORDER BY priority, id LIMIT ?) RETURNING id, claim, handler, params",
                (count,),
            ).fetchall()
        )
        return [(row[0], row[1]) for row in rows]

    def settle(self, claimed: list[tuple[str, int]]) -> None:
        rows = [(task, claim) for task, claim in claimed]
        self._transaction(
            lambda do: do.executemany(
                "UPDATE pitboss_tasks SET state = 'completed', outcome = 'completed', finished_at = 2, result = 'null',"
                " worker = 'w', attempts = attempts + 1"
                " WHERE id = ? AND state = 'running' AND session = 1 AND claim = ?",
                rows,
            )
        )

    def _transaction(self, work: Any) -> Any:
        self._connection.execute("BEGIN IMMEDIATE")
        result = work(self._connection)
        self._connection.execute("COMMIT")
        return result


class BarePostgres:
    """The same with psycopg: one round trip for each verb, with the best plans that we know."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)

    def put(self, ids: list[str]) -> None:
        self._connection.execute(
            "INSERT INTO pitboss.tasks (id, handler, queue, state, params, priority, created_at)"
            " SELECT id, 'noop', 'bare', 'pending', %s, 0, 1 FROM unnest(%s::uuid[]) AS id",
            (PARAMS, ids),
        )

    def claim(self, count: int) -> list[tuple[str, int]]:
        rows = self._connection.execute(
            "WITH picked AS MATERIALIZED (SELECT ctid FROM pitboss.tasks WHERE state = 'pending' AND queue = 'bare'"
            " ORDER BY priority, id LIMIT %s FOR UPDATE SKIP LOCKED)"
            " UPDATE pitboss.tasks SET state = 'running', session = 1, claim = claim + 1, started_at = 1"
            " WHERE ctid = ANY (ARRAY (SELECT ctid FROM picked)) RETURNING id::text, claim, handler, params",
            (count,),
        ).fetchall()
        return [(row[0], row[1]) for row in rows]

    def settle(self, claimed: list[tuple[str, int]]) -> None:
        self._connection.execute(
            "WITH found AS MATERIALIZED (SELECT t.ctid FROM unnest(%s::uuid[], %s::bigint[]) AS i (id, claim)"
            " CROSS JOIN LATERAL"
            " (SELECT ctid, state, session, claim FROM pitboss.tasks WHERE id = i.id FOR UPDATE) AS t"
            " WHERE t.state = 'running' AND t.session = 1 AND t.claim = i.claim)"
            " UPDATE pitboss.tasks SET state = 'completed', outcome = 'completed', finished_at = 2, result = 'null',"
            " worker = 'w', attempts = attempts + 1 WHERE ctid = ANY (ARRAY (SELECT ctid FROM found))",
            ([task for task, _ in claimed], [claim for _, claim in claimed]),
        )

    def vacuum(self) -> None:
        self._connection.execute("VACUUM ANALYZE pitboss.tasks")


class Ground:
    """An opened engine on a fresh store, with a registered handler, an id maker and its bare counterpart."""

    def __init__(self, engine: Store, bare: Bare) -> None:
        self.engine, self.bare = engine, bare
        self.new_id = IdMaker(wiring.SystemClock().now, wiring.randbits())

    def tasks(self, count: int, **options: Any) -> list[NewTask]:
        return [NewTask(id=self.new_id(), handler="noop", params=PARAMS, **options) for _ in range(count)]


@asynccontextmanager
async def ground(kind: str) -> AsyncIterator[Ground]:
    """A new store for one measurement: a new file, or a new server."""
    with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as folder:
        if kind == "sqlite":
            async with _opened(f"sqlite:///{folder}/bench.db") as engine:
                yield Ground(engine, BareSqlite(Path(folder) / "bench.db"))
        else:
            with PostgresServer() as server:
                dsn = await asyncio.to_thread(server.create_database)
                async with _opened(dsn) as engine:
                    yield Ground(engine, BarePostgres(dsn))


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    engine = wiring.make_engine(url)
    await engine.open()
    try:
        await engine.register([HandlerInfo(name="noop")])
        yield engine
    finally:
        await engine.close()
