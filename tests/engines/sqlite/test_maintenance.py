"""Damage is found and told as damage; a copy is whole while others write; what is left of a damaged file is saved."""

import asyncio
import fcntl
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pitboss.engines.sqlite import SqliteEngine
from pitboss.engines.sqlite.open_store import side_folder
from pitboss.model.errors import StoreDamaged, StoreUnavailable
from pitboss.model.filter import EVERYTHING
from pitboss.model.finding import Finding, Grade
from tests.engines.sqlite.store import WallClock, asking, new, opened, session_of

PAGE = 4096
# The first byte of a page says what it is. The largest table is that of the tasks, so most leaves are its own.
TABLE_LEAF, INDEX_LEAF = 0x0D, 0x0A
TASKS = 3000


def _ignored(done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with tasks."""

    async def fill() -> None:
        async with opened(tmp_path / "shop.db") as engine:
            await session_of(engine)
            await engine.put([new(params=f'{{"text":"{"x" * 100}"}}') for _ in range(TASKS)])

    asyncio.run(fill())
    return tmp_path / "shop.db"


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _overwrite(path: Path, kind: int, count: int = 1) -> None:
    """Write noise over pages of this kind, from the middle of the file on."""
    data = bytearray(path.read_bytes())
    pages = [page for page in range(len(data) // PAGE) if data[page * PAGE] == kind]
    for page in pages[len(pages) // 2 :][:count]:
        data[page * PAGE : (page + 1) * PAGE] = random.Random(page).randbytes(PAGE)
    path.write_bytes(data)


async def _checked(path: Path, *, seconds: float | None = None, full: bool = False) -> dict[str, Finding]:
    engine = SqliteEngine(path, clock=WallClock())
    return {finding.check: finding for finding in await engine.check(seconds=seconds, full=full)}


@pytest.mark.parametrize("kind", [TABLE_LEAF, INDEX_LEAF])
async def test_an_overwritten_page_is_found_with_how_to_save_the_rest(path: Path, kind: int) -> None:
    assert (await _checked(path))["content"].grade is Grade.OK
    assert (await _checked(path, full=True))["content"].grade is Grade.OK
    _overwrite(path, kind)
    for full in (False, True):
        found = (await _checked(path, full=full))["content"]
        assert found.grade is Grade.PROBLEM
        assert "is damaged" in found.what
        assert "pitboss db backup saved.db --salvage" in found.fix


async def test_a_check_that_runs_out_of_time_says_so(path: Path) -> None:
    found = (await _checked(path, seconds=0))["content"]
    assert found.grade is Grade.OK
    assert "in the time; pitboss db check reads them all" in found.what


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert await _checked(tmp_path / "none.db") == {}
    assert _files(tmp_path) == []


async def test_damage_met_while_running_is_told_as_damage(path: Path) -> None:
    _overwrite(path, TABLE_LEAF, 1000)
    told: list[StoreUnavailable] = []
    async with opened(path) as engine:
        engine.on_trouble(told.append)
        with pytest.raises(StoreDamaged, match="is damaged"):
            await engine.find(EVERYTHING, limit=TASKS)
        with pytest.raises(StoreDamaged, match="is damaged"):
            await engine.claim(asking(await session_of(engine), TASKS))
    assert len(told) >= 2
    assert all(isinstance(error, StoreDamaged) for error in told)


async def test_a_store_that_cannot_be_written_is_told_and_probed(path: Path) -> None:
    told: list[StoreUnavailable] = []
    async with opened(path, lock_timeout=0.05) as engine:
        engine.on_trouble(told.append)
        await engine.probe()
        held = os.open(side_folder(path) / "lock", os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="write lock"):
            await engine.put([new()])
        with pytest.raises(StoreUnavailable, match="write lock"):
            await engine.probe()
        os.close(held)
        await engine.probe()
    assert told
    assert not any(isinstance(error, StoreDamaged) for error in told)


async def test_a_copy_is_of_one_moment_while_others_write(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    done: list[int] = []
    async with opened(path) as engine:
        copying = asyncio.create_task(engine.backup(copy, lambda part, _total: done.append(part)))
        written = 0
        while not copying.done() or not written:
            await engine.put([new() for _ in range(20)])
            written += 20
        how = await copying
        assert (await engine.count(EVERYTHING)).number == TASKS + written
    assert str(path) in how
    assert done == sorted(done)
    found = await _checked(copy, full=True)
    assert {one.grade for one in found.values()} == {Grade.OK}
    async with opened(copy) as engine:
        assert ((await engine.count(EVERYTHING)).number - TASKS) % 20 == 0, "each put as a whole or not at all"


async def test_a_damaged_store_is_not_copied_but_saved(path: Path, tmp_path: Path) -> None:
    _overwrite(path, TABLE_LEAF, 3)
    _overwrite(path, INDEX_LEAF, 3)
    copy = tmp_path / "copy.db"
    engine = SqliteEngine(path, clock=WallClock())
    with pytest.raises(StoreDamaged, match="a copy would be as damaged"):
        await engine.backup(copy, _ignored)
    assert "copy.db" not in _files(tmp_path)
    how = await engine.backup(copy, _ignored, salvage=True)
    assert "some rows could not be read, in pitboss_tasks" in how
    assert {one.grade for one in (await _checked(copy, full=True)).values()} == {Grade.OK}
    async with opened(copy) as saved:
        left = (await saved.count(EVERYTHING)).number
        assert TASKS * 0.9 < left < TASKS
        session = await session_of(saved)
        assert session.number > 1, "numbers of sessions are not used twice"
        assert len((await saved.claim(asking(session, TASKS))).claims) == left


async def test_counts_that_are_wrong_are_found_and_corrected(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE pitboss_counts SET n = n - 10 WHERE state = 'pending'")
        connection.commit()
    found = (await _checked(path))["counts"]
    assert found.grade is Grade.PROBLEM
    assert "default pending -10" in found.what
    engine = SqliteEngine(path, clock=WallClock())
    assert await engine.recount() == 1
    await engine.close()
    assert (await _checked(path))["counts"].grade is Grade.OK
