"""Tables: migrated equals fresh, an older store is upgraded once, a newer one is refused."""

import asyncio
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest

from pitboss.engines.sqlite import schema
from pitboss.model.declared import Declared
from pitboss.model.errors import SchemaMismatch
from pitboss.model.partition import Partitioning
from pitboss.model.queue import HandlerInfo, QueueChange, QueueSettings
from pitboss.model.resource import Declaration, NewResource, PoolRules
from tests.engines.sqlite.store import asking, new, opened, session_of

pytestmark = pytest.mark.fresh_loop


def tables(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Everything that was created, layout aside: SQLite adds a column behind the last line of a table."""
    found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return sorted((kind, name, re.sub(r"\s*([(),])\s*|\s+", r"\1 ", sql)) for kind, name, sql in found)


def test_migrations_lead_to_exactly_the_fresh_schema() -> None:
    migrated, fresh = sqlite3.connect(":memory:", isolation_level=None), sqlite3.connect(":memory:")
    schema.upgrade(migrated)
    for part in ("schema.sql", "schema_lists.sql", "schema_operations.sql", "schema_figures.sql", "schema_logs.sql"):
        fresh.executescript(files("pitboss.engines.sqlite").joinpath(part).read_text(encoding="utf-8"))
    assert tables(migrated) == tables(fresh)
    assert list(migrated.execute("SELECT * FROM pitboss_meta")) == list(fresh.execute("SELECT * FROM pitboss_meta"))
    migrated.close()
    fresh.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [number for number, _, _ in schema.migrations()] == list(range(1, schema.wanted_version() + 1))


async def test_a_store_of_the_first_schema_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(schema.migrations()[0][2])
        connection.execute("INSERT INTO pitboss_meta (name, value) VALUES ('schema', 1)")
        connection.execute("INSERT INTO pitboss_handlers VALUES ('job', 'default', '{}', '{}')")
    connection.close()
    async with opened(path) as engine:
        assert (await engine.schema_version())[0] == schema.wanted_version() > 1
        assert [handler.name for handler in await engine.handlers()] == ["job"]
        assert (await engine.campaign((await session_of(engine)).number)).term == 1


async def test_tasks_of_an_older_store_take_part_in_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        for _, _, text in schema.migrations()[:2]:
            connection.executescript(text)
        connection.execute("INSERT INTO pitboss_meta (name, value) VALUES ('schema', 2)")
        connection.execute("INSERT INTO pitboss_queues (name) VALUES ('default')")
        connection.execute(
            "INSERT INTO pitboss_tasks (id, handler, queue, state, priority, created_at, params) "
            "VALUES ('old', 'job', 'default', 'pending', 0, 1, '{}')"
        )
        connection.execute("INSERT INTO pitboss_counts (queue, state, n) VALUES ('default', 'pending', 1)")
    connection.close()
    async with opened(path) as engine:
        session = await session_of(engine)
        await engine.register([HandlerInfo(name="job", resources="proxies")])
        await engine.add_resources("proxies", [NewResource(name="one")])
        (claim,) = (await engine.claim(asking(session))).claims
        assert claim.leased is not None
        assert (claim.id, claim.batch, claim.leased.id) == ("old", None, "proxies/one")


async def test_rules_of_an_older_store_count_as_declared(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        for _, _, text in schema.migrations()[:3]:
            connection.executescript(text)
        connection.execute("INSERT INTO pitboss_meta (name, value) VALUES ('schema', 3)")
        connection.execute("""INSERT INTO pitboss_pools VALUES ('proxies', '{"max_failures":7}')""")
    connection.close()
    async with opened(path) as engine:
        before = await engine.declare_pool("proxies", PoolRules(), replace=False)
        assert before == Declaration(rules=PoolRules(max_failures=7))
        assert (await engine.resource_pools())[0].rules.max_failures == 7


async def test_handlers_of_an_older_store_get_numbers_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        for _, _, text in schema.migrations()[:6]:
            connection.executescript(text)
        connection.execute("INSERT INTO pitboss_meta (name, value) VALUES ('schema', 6)")
        for name in ("b", "c", "a"):
            connection.execute(
                "INSERT INTO pitboss_handlers (name, queue, policy, schema) VALUES (?, 'q', '{}', '{}')", (name,)
            )
    connection.close()
    async with opened(path) as engine:
        await engine.register([HandlerInfo(name="0"), HandlerInfo(name="c", queue="q")])
        known = await engine.handlers()
        assert {one.name: one.number for one in known} == {"a": 1, "b": 2, "c": 3, "0": 4}
        assert [(one.remote, one.about) for one in known] == [(False, "{}")] * 4


async def test_an_older_store_with_data_gets_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        for _, _, text in schema.migrations()[:7]:
            connection.executescript(text)
        connection.execute("INSERT INTO pitboss_meta (name, value) VALUES ('schema', 7)")
        connection.executemany(
            "INSERT INTO pitboss_queues (name, capacity, rate) VALUES (?, ?, ?)",
            [("a", 5, None), ("b", None, "[[2,1000000]]"), ("c", 5, "[[2,1000000]]"), ("default", None, None)],
        )
        connection.execute(
            "INSERT INTO pitboss_tasks (id, handler, queue, state, priority, created_at, params) "
            "VALUES ('old', 'job', 'default', 'pending', 0, 1, '{}')"
        )
        connection.execute("INSERT INTO pitboss_counts (queue, state, n) VALUES ('default', 'pending', 1)")
    connection.close()
    async with opened(path) as engine:
        limited = {queue.name: queue.limited for queue in await engine.queues()}
        assert limited == {"a": ("capacity",), "b": ("rate",), "c": ("capacity", "rate"), "default": ()}
        session = await session_of(engine)
        settings = {name: QueueSettings(capacity=1) for name in limited}
        assert await engine.declare(Declared(app="shop", queues=settings), session=session.number)
        assert {one.name: one.capacity for one in await engine.queues()} == {"a": 5, "b": 1, "c": 5, "default": 1}
        (claim,) = (await engine.claim(asking(session))).claims
        assert (claim.id, claim.meta) == ("old", None)
        await engine.change_queue("default", QueueChange(capacity=None))
        await engine.put([new(order_key="k"), new(order_key="k")])
        assert len((await engine.claim(asking(session, 5))).claims) == 1


async def test_tasks_that_were_put_before_there_were_partitions_have_no_key(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        for _, _, text in schema.migrations()[:8]:
            connection.executescript(text)
        connection.execute("INSERT INTO pitboss_meta (name, value) VALUES ('schema', 8)")
        connection.execute("INSERT INTO pitboss_queues (name) VALUES ('default')")
        connection.execute(
            "INSERT INTO pitboss_tasks (id, handler, queue, state, priority, created_at, params) "
            "VALUES ('old', 'job', 'default', 'pending', 0, 1, '{\"k\":\"a\"}')"
        )
        connection.execute("INSERT INTO pitboss_counts (queue, state, n) VALUES ('default', 'pending', 1)")
    connection.close()
    async with opened(path) as engine:
        session = await session_of(engine)
        settings = QueueSettings(partitions=Partitioning(by="{k}", mode="balanced"))
        await engine.declare(Declared(app="shop", queues={"default": settings}), session=session.number)
        await engine.put([new(params='{"k":"a"}')])
        assert [(one.key, one.unfinished) for one in await engine.partitions("default")] == [("a", 1)]
        claimed = await engine.claim(asking(session, 5))
        assert ([claim.id for claim in claimed.claims], claimed.partitioned) == (["old"], True)


async def test_a_newer_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine:
        assert await engine.schema_version() == (schema.wanted_version(), schema.wanted_version())
        assert await engine.upgrade() == []
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE pitboss_meta SET value = 99 WHERE name = 'schema'")
    connection.close()
    with pytest.raises(SchemaMismatch) as caught:
        async with opened(path):
            pass
    assert "schema 99" in caught.value.what
    assert caught.value.why
    assert "upgrade Pitboss" in caught.value.fix


async def test_a_foreign_table_of_the_same_name_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE pitboss_queues (mine TEXT)")
    connection.close()
    with pytest.raises(SchemaMismatch, match="queues"):
        async with opened(path):
            pass
    with sqlite3.connect(path) as connection:
        assert [name for _, name, _ in tables(connection)] == ["pitboss_queues"]
    connection.close()


async def test_many_openers_of_a_new_file_create_it_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def one() -> None:
        async with opened(path) as engine:
            await engine.put([new()])

    await asyncio.gather(*(one() for _ in range(8)))
    async with opened(path) as engine:
        (queue,) = await engine.queues()
        assert queue.waiting == 8


async def test_the_view_of_tasks_has_times_that_people_read(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine:
        await engine.put([new(queue="mail", params='{"n":1}')])
    with sqlite3.connect(path) as connection:
        row = connection.execute(
            "SELECT queue, state, params, created_at, started_at FROM pitboss_task_view"
        ).fetchone()
    connection.close()
    assert row[:3] == ("mail", "held", '{"n":1}')
    assert abs(datetime.fromisoformat(f"{row[3]}+00:00") - datetime.now(UTC)) < timedelta(minutes=1)
    assert row[4] is None
