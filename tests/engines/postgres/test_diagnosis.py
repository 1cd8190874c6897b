"""What the engine says about its server."""

import asyncio

import psycopg
import pytest
from psycopg import sql

from pitboss.engines.postgres import diagnosis
from pitboss.engines.postgres.diagnosis import Server
from pitboss.engines.protocol import Diagnosis
from pitboss.model.duration import SECOND
from pitboss.model.finding import Finding, Grade
from pitboss.testing.clock import FakeClock
from tests.engines.postgres.yard import Yard
from tests.engines.sqlite.store import WallClock

WELL = Server("17.7 (Debian)", 170_007, "on", "on", "on", "on", 100, False, 5, 0)


@pytest.fixture
def yard(durable_dsn: str) -> Yard:
    return Yard(durable_dsn)


def grades(findings: list[Finding]) -> dict[str, Grade]:
    return {finding.check: finding.grade for finding in findings}


async def test_a_durable_server_is_in_order(yard: Yard) -> None:
    assert isinstance(yard.engine, Diagnosis)
    found = await yard.engine.diagnose(WallClock())
    assert set(grades(found).values()) == {Grade.OK}
    assert grades(found).keys() == {"durability", "server", "vacuum", "connections", "locks", "clock"}


async def test_a_database_that_commits_without_waiting_is_found(yard: Yard) -> None:
    async with await psycopg.AsyncConnection.connect(yard.dsn, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        await connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(name))
    engine = await yard.open()
    found = await engine.diagnose(WallClock())
    (durability,) = [finding for finding in found if finding.check == "durability"]
    assert durability.grade is Grade.PROBLEM
    assert durability.fix.startswith("set synchronous_commit = on")


async def test_a_lock_that_is_waited_for_is_found_with_its_holder(yard: Yard) -> None:
    async with (
        await psycopg.AsyncConnection.connect(yard.dsn) as holder,
        await psycopg.AsyncConnection.connect(yard.dsn) as waiter,
    ):
        await holder.execute("SELECT pg_advisory_xact_lock(17)")
        waiting = asyncio.create_task(waiter.execute("SELECT pg_advisory_xact_lock(17)"))
        async with await psycopg.AsyncConnection.connect(yard.dsn, autocommit=True) as look:
            cursor = await look.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            while await cursor.fetchone() == (0,):
                cursor = await look.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        (locks,) = [one for one in await yard.engine.diagnose(WallClock()) if one.check == "locks"]
        assert (locks.grade, locks.what) == (Grade.OK, "1 transaction waits for a lock, none for longer than 2s")
        (row,) = await yard.engine._write("server_locks")
        assert row[2:] == (holder.info.backend_pid, "idle in transaction")
        await holder.rollback()
        await waiting


def test_a_lock_that_is_waited_for_long_is_a_warning() -> None:
    found = diagnosis.of_locks([(3, 12 * SECOND, 4711, "idle in transaction")])
    assert found.grade is Grade.WARNING
    assert found.what == "3 transactions wait for a lock, one for 12s; process 4711 (idle in transaction) holds it"
    assert "pg_terminate_backend(4711)" in found.fix
    assert (
        diagnosis.of_locks([(1, 3 * SECOND, None, None)]).fix == "all waits: SELECT * FROM pg_locks WHERE NOT granted"
    )


async def test_a_clock_that_is_an_hour_behind_is_found(yard: Yard) -> None:
    clock = FakeClock(WallClock().now() - 3600 * SECOND)
    (skew,) = [finding for finding in await yard.engine.diagnose(clock) if finding.check == "clock"]
    assert skew.grade is Grade.PROBLEM
    assert "behind" in skew.what


@pytest.mark.parametrize(
    ("change", "check", "grade"),
    [
        ({"fsync": "off"}, "durability", Grade.PROBLEM),
        ({"full_page_writes": "off"}, "durability", Grade.PROBLEM),
        ({"synchronous_commit": "local"}, "durability", Grade.OK),
        ({"autovacuum": "off"}, "vacuum", Grade.PROBLEM),
        ({"number": 120_000}, "server", Grade.WARNING),
        ({"number": 150_014}, "server", Grade.PROBLEM),
        ({"connections": 95}, "connections", Grade.WARNING),
        ({"recovering": True}, "server", Grade.PROBLEM),
    ],
)
def test_what_can_be_wrong_with_a_server(change: dict[str, object], check: str, grade: Grade) -> None:
    assert set(grades(diagnosis.of_server(WELL)).values()) == {Grade.OK}
    assert grades(diagnosis.of_server(WELL._replace(**change)))[check] is grade  # type: ignore[arg-type]
