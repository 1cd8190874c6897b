"""The write-ahead log beside the SQLite file: how large it gets, and what a reader that stays does to it."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from pitboss.engines.sqlite import SqliteEngine, open_store
from pitboss.engines.sqlite.ledger import Ledger
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import EVERYTHING
from tests.engines.sqlite.store import new, opened

pytestmark = pytest.mark.fresh_loop(limit=60)
# 4,000 pages of 4 KiB with their headers, and what one more commit adds before the log is emptied.
BOUND = 18 << 20
_TEXT = '"' + "x" * 3000 + '"'


async def _written(engine: SqliteEngine, path: Path, megabytes: int) -> int:
    """Put so much; the size of the log then."""
    for _ in range(megabytes * 4):
        await engine.put([new(params=_TEXT) for _ in range(80)])
    return path.with_name(path.name + "-wal").stat().st_size


async def test_the_log_is_reused(disk: Path) -> None:
    async with opened(disk / "s.db") as engine:
        assert await _written(engine, disk / "s.db", 50) < BOUND


async def test_a_read_of_ours_that_stays_is_ended(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(self: Ledger, *_: object) -> int:
        text = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, sqlite_master"
        found: int = self._connection.execute(text).fetchone()[0]
        return found

    monkeypatch.setattr(open_store, "_READ_LIMIT", 0.3)
    monkeypatch.setattr(Ledger, "count", endless)
    async with opened(disk / "s.db") as engine:
        await engine.put([new()])
        with pytest.raises(StoreUnavailable, match="took too long"):
            await engine.count(EVERYTHING)
        assert await _written(engine, disk / "s.db", 30) < BOUND


async def test_a_foreign_reader_that_stays_makes_it_grow_only_while_it_stays(disk: Path) -> None:
    path = disk / "s.db"
    async with opened(path) as engine:
        await engine.put([new()])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as foreign:
            foreign.execute("BEGIN")
            foreign.execute("SELECT count(*) FROM sqlite_master").fetchone()
            grown = await _written(engine, path, 30)
            assert grown > BOUND
        assert await _written(engine, path, 30) <= grown + (1 << 20)
