"""The file itself: its mode, its durability, and the errors if it cannot be used."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from pitboss.engines.sqlite import SqliteEngine, connection
from pitboss.engines.sqlite.faults import translated
from pitboss.model.errors import InvalidInput, PitbossError, StoreUnavailable, Unsupported
from tests.engines.sqlite.store import WallClock, new, opened

pytestmark = pytest.mark.fresh_loop


async def _refused(path: Path) -> PitbossError:
    with pytest.raises(StoreUnavailable) as caught:
        async with opened(path):
            pass
    assert caught.value.why
    assert caught.value.fix
    return caught.value


def _modes(folder: Path) -> dict[str, int]:
    return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()}


async def test_a_new_store_belongs_to_its_owner_only(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        await engine.put([new()])
        names = _modes(tmp_path)
    assert names == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600, "s.db-pitboss": 0o700}


async def test_the_mode_of_an_existing_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch(0o640)
    path.chmod(0o640)
    async with opened(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_every_commit_is_synced(tmp_path: Path) -> None:
    writer = connection.connect_writer(tmp_path / "s.db")
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
    writer.close()


def test_readers_cannot_write(tmp_path: Path) -> None:
    reader = connection.connect_reader(tmp_path / "s.db")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("CREATE TABLE t (a)")
    reader.close()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    error = await _refused(tmp_path / "no" / "such" / "s.db")
    assert "folder" in error.why


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_text("Dear diary, " * 100)
    error = await _refused(path)
    assert "not an SQLite database" in error.what
    assert path.read_text().startswith("Dear diary")


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    await _refused(tmp_path)


@pytest.mark.parametrize("path", ["", ":memory:", "file:x.db?mode=ro"])
def test_what_cannot_be_shared_by_processes_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        SqliteEngine(path, clock=WallClock())


def test_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    with pytest.raises(Unsupported, match="too old"):
        SqliteEngine("s.db", clock=WallClock())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SQLITE_FULL", "is full"),
        ("SQLITE_READONLY_DBMOVED", "cannot be written"),
        ("SQLITE_CORRUPT_INDEX", "is damaged"),
        ("SQLITE_BUSY_SNAPSHOT", "locked by another program"),
        ("SQLITE_IOERR_WRITE", "cannot be read or written"),
        ("SQLITE_MISUSE", "does not work"),
    ],
)
def test_every_fault_says_what_why_and_what_to_do(name: str, said: str) -> None:
    fault = sqlite3.OperationalError("low level words")
    fault.sqlite_errorname = name
    told = translated(fault, "tasks.db")
    assert isinstance(told, StoreUnavailable)
    assert "tasks.db" in told.what
    assert said in told.what
    assert told.why
    assert told.fix


async def test_a_full_disk_is_an_error_and_not_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine:
        await engine.put([new()])
        engine.run_sync("limit", lambda act: act.query("PRAGMA max_page_count = 40", ()).fetchall())
        with pytest.raises(StoreUnavailable, match="full"):
            await engine.put([new(params='"' + "x" * 500_000 + '"')])
        engine.run_sync("limit", lambda act: act.query("PRAGMA max_page_count = 1000000", ()).fetchall())
        await engine.put([new()])
        (queue,) = await engine.queues()
        assert queue.waiting == 2


def _is_refused_in_a_child(engine: SqliteEngine) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            engine.put_sync([new()])
        except StoreUnavailable:
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


async def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        assert _is_refused_in_a_child(engine)
        await engine.put([new()])
