"""The schema: made once however many engines open the store, equal to the fresh one, and refused if it is newer."""

import asyncio
from datetime import timedelta
from importlib.resources import files

import psycopg
import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.postgres.script import Statements
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, SchemaMismatch
from pitboss.model.queue import QueueChange, QueueSettings
from pitboss.model.session import SessionInfo
from tests.engines.postgres.yard import Yard, ends

pytestmark = pytest.mark.fresh_loop

NEWEST = 18

_COLUMNS = """
SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default, is_identity
FROM information_schema.columns WHERE table_schema = %s
"""
_INDEXES = "SELECT tablename, indexname, replace(indexdef, %s || '.', '') FROM pg_indexes WHERE schemaname = %s"
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = %s::regnamespace
"""
_OPTIONS = "SELECT relname, reloptions FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'i')"


def _described(connection: psycopg.Connection, schema: str) -> list[list[str]]:
    answers = [
        connection.execute(_COLUMNS, [schema]).fetchall(),
        connection.execute(_INDEXES, [schema, schema]).fetchall(),
        connection.execute(_CONSTRAINTS, [schema]).fetchall(),
        connection.execute(_OPTIONS, [schema]).fetchall(),
    ]
    return [sorted(str(row).replace(f"{schema}.", "") for row in answer) for answer in answers]


async def test_migrated_equals_fresh(yard: Yard) -> None:
    others = ("partitions", "alerts", "operations", "figures", "lists", "logs")
    parts = ("schema.sql", *(f"schema_{name}.sql" for name in others))
    fresh = "\n".join(files("pitboss.engines.postgres").joinpath(part).read_text(encoding="utf-8") for part in parts)
    with psycopg.connect(yard.dsn) as connection:
        connection.execute("CREATE SCHEMA fresh")
        connection.execute(fresh.replace("{schema}", "fresh").encode(), prepare=False)
        assert _described(connection, "pitboss") == _described(connection, "fresh")


async def test_many_openers_make_one_schema(postgres_dsn: str) -> None:
    engines = [PostgresEngine(postgres_dsn, listen=False) for _ in range(8)]
    await asyncio.gather(*(engine.open() for engine in engines))
    with psycopg.connect(postgres_dsn) as connection:
        row = connection.execute("SELECT count(*), max(version) FROM pitboss.migrations").fetchone()
    assert row == (NEWEST, NEWEST)
    assert await engines[0].schema_version() == (NEWEST, NEWEST)
    assert await engines[0].upgrade() == []
    for engine in engines:
        await engine.close()


async def test_a_store_of_the_first_schema_is_upgraded(postgres_dsn: str) -> None:
    first = files("pitboss.engines.postgres").joinpath("migrations/0001_first.sql").read_text(encoding="utf-8")
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(b"CREATE SCHEMA pitboss")
        connection.execute(first.replace("{schema}", "pitboss").encode(), prepare=False)
        connection.execute(b"CREATE TABLE pitboss.migrations (version bigint PRIMARY KEY, name text NOT NULL)")
        connection.execute(b"INSERT INTO pitboss.migrations VALUES (1, '0001_first')")
        connection.execute(
            b"INSERT INTO pitboss.handlers VALUES ('job', 'default', '{}', '{}'), ('A', 'a', '{}', '{}')"
        )
    engine = PostgresEngine(postgres_dsn, listen=False)
    await engine.open()
    assert await engine.schema_version() == (NEWEST, NEWEST)
    known = await engine.handlers()
    assert {handler.name: handler.number for handler in known} == {"A": 1, "job": 2}
    now = engine.clock.now()
    assert all(now - 60 * SECOND < handler.created_at == handler.updated_at <= now + SECOND for handler in known)
    session = await engine.open_session(SessionInfo(host="here"))
    assert (await engine.campaign(session.number)).term == 1
    await engine.close()


async def test_a_store_with_tasks_and_limits_gets_order_keys_and_declarations(postgres_dsn: str) -> None:
    """What was there before goes on, and limits of queues count as an operator's."""
    before = {name: text for name, text in Statements("pitboss", "").migrations().items() if name < "0008"}
    task = "0198c1a0-0000-7000-8000-000000000001"
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(b"CREATE SCHEMA pitboss")
        connection.execute(b"CREATE TABLE pitboss.migrations (version bigint PRIMARY KEY, name text NOT NULL)")
        for number, (name, text) in enumerate(before.items(), start=1):
            connection.execute(text.encode(), prepare=False)
            connection.execute("INSERT INTO pitboss.migrations VALUES (%s, %s)", [number, name])
        connection.execute(
            "INSERT INTO pitboss.queues (name, capacity, rate_counts, rate_spans) VALUES"
            " ('both', 5, '{2}', '{1000000}'), ('rated', NULL, '{3}', '{1000000}'), ('free', NULL, NULL, NULL)"
        )
        connection.execute(
            "INSERT INTO pitboss.handlers (name, queue, policy, schema, number) VALUES ('job', 'free', '{}', '{}', 1)"
        )
        connection.execute(
            "INSERT INTO pitboss.tasks (id, priority, created_at, state, queue, handler, params)"
            " VALUES (%s, 0, 1, 'pending', 'free', 'job', '{}')",
            [task],
        )
    async with Yard(postgres_dsn, listen=False) as yard:
        queues = {queue.name: queue for queue in await yard.engine.queues()}
        assert {name: queue.limited for name, queue in queues.items()} == {
            "both": ("capacity", "rate"),
            "rated": ("rate",),
            "free": (),
        }
        assert all(queue.declared is None for queue in queues.values())
        assert await yard.engine.declare(Declared(app="a", queues={"both": QueueSettings(capacity=9)}))
        assert (await yard.engine.change_queue("both", QueueChange(withdraw=("capacity",)))).capacity == 9
        (claim,) = (await yard.claim(5)).claims
        assert (claim.id, claim.meta) == (task, None)
        assert [answer.applied for answer in await yard.engine.settle(ends([claim]))] == [True]
        assert await yard.engine.schedules() == []
        assert await yard.engine.events() == []


async def test_a_newer_store_is_refused(yard: Yard) -> None:
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO pitboss.migrations (version, name) VALUES (999, 'from the future')")
    late = PostgresEngine(yard.dsn)
    with pytest.raises(SchemaMismatch, match="999"):
        await late.open()
    await late.close()


async def test_two_schemas_side_by_side_know_nothing_of_each_other(yard: Yard) -> None:
    other = await yard.open(schema="Other_One")
    await yard.engine.put([yard.new()])
    assert await other.queues() == []
    assert [queue.name for queue in await yard.engine.queues()] == ["default"]


async def test_a_ring_stays_within_its_schema(yard: Yard) -> None:
    other = await yard.open(schema="other")
    await yard.engine.put([yard.new()])
    assert await yard.engine.wait(None, 5)
    assert not await other.wait(None, 0.05)


async def test_a_schema_s_name_is_checked() -> None:
    with pytest.raises(InvalidInput):
        PostgresEngine("", schema='x"; DROP TABLE tasks; --')


async def test_an_unopened_store_says_so(postgres_dsn: str) -> None:
    engine = PostgresEngine(postgres_dsn)
    with pytest.raises(SchemaMismatch):
        await engine.queues()
    await engine.close()


async def test_the_view_of_tasks_has_times_that_people_read(yard: Yard) -> None:
    await yard.engine.put(yard.news(1))
    with psycopg.connect(yard.dsn) as connection:
        row = connection.execute("SELECT state, created_at - now(), started_at FROM pitboss.task_view").fetchone()
    assert row is not None
    assert row[0] == "pending"
    assert abs(row[1]) < timedelta(minutes=1)
    assert row[2] is None
