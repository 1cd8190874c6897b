"""Checking the tables, counting tasks again, and dumping with pg_dump."""

import asyncio
from pathlib import Path

import psycopg
import pytest

from pitboss.engines.postgres import PostgresEngine, maintenance
from pitboss.model.errors import Refused, Unsupported
from pitboss.model.filter import EVERYTHING
from pitboss.model.finding import Finding, Grade
from tests.engines.postgres.yard import Yard
from tests.servers.postgres import PostgresServer, find_binaries


def _ignored(done: int, total: int) -> None:
    assert 0 <= done <= total


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def _checked(yard: Yard) -> dict[str, Finding]:
    return {finding.check: finding for finding in await yard.engine.check()}


async def _execute(yard: Yard, statement: bytes) -> None:
    async with await psycopg.AsyncConnection.connect(yard.dsn, autocommit=True) as connection:
        await connection.execute(statement)


async def test_wrong_counts_and_invalid_indexes_are_found(yard: Yard) -> None:
    await yard.engine.put(yard.news(5))
    assert {one.grade for one in (await _checked(yard)).values()} == {Grade.OK}
    await _execute(yard, b"INSERT INTO pitboss.count_deltas (queue, state, n) VALUES ('default', 'pending', -2)")
    found = (await _checked(yard))["counts"]
    assert found.grade is Grade.PROBLEM
    assert "default pending -2" in found.what
    assert await yard.engine.recount() == 1
    assert (await _checked(yard))["counts"].grade is Grade.OK
    await _execute(yard, b"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'pitboss.tasks_failed'::regclass")
    found = (await _checked(yard))["indexes"]
    assert found.grade is Grade.PROBLEM
    assert "tasks_failed" in found.what


async def test_a_dump_restores_into_another_database(
    yard: Yard, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    await yard.engine.put(yard.news(5))
    file = tmp_path / "pitboss.dump"
    how = await yard.engine.backup(file, _ignored)
    assert how.startswith("restore it with: pg_restore")
    other = postgres_server.create_database()
    try:
        program = find_binaries() / "pg_restore"
        child = await asyncio.create_subprocess_exec(program, "--no-owner", f"--dbname={other}", file)
        assert await child.wait() == 0
        restored = PostgresEngine(other)
        await restored.open()
        assert (await restored.count(EVERYTHING)).number == 5
        await restored.close()
    finally:
        postgres_server.drop_database(other)


async def test_a_dump_that_fails_says_why_and_leaves_no_file(tmp_path: Path) -> None:
    engine = PostgresEngine("postgresql://user:hunter22@127.0.0.1:1/none")
    with pytest.raises(Refused, match="pg_dump failed") as caught:
        await engine.backup(tmp_path / "x.dump", _ignored)
    assert "127.0.0.1" in caught.value.why
    assert "hunter22" not in str(caught.value)
    assert _files(tmp_path) == []


async def test_without_pg_dump_the_command_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(maintenance, "_program", lambda _name: None)
    engine = PostgresEngine("postgresql://user:hunter22@127.0.0.1:1/none")
    with pytest.raises(Unsupported, match="pg_dump is not installed here") as caught:
        await engine.backup(tmp_path / "x.dump", _ignored)
    assert "pg_dump --format=custom --schema=pitboss" in caught.value.fix
    assert "hunter22" not in str(caught.value)
    with pytest.raises(Unsupported, match="--salvage is for a damaged SQLite file"):
        await engine.backup(tmp_path / "x.dump", _ignored, salvage=True)
