"""A store whose tasks were pruned gives the room back to the disk."""

import sqlite3
from pathlib import Path
from random import Random

from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import IdMaker
from pitboss.model.session import SessionInfo
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock

TASKS = 4000
# Of each task, so that the file has many pages.
PADDING = "x" * 3000


async def filled(engine: SqliteEngine, clock: FakeClock) -> None:
    """A store full of finished tasks."""
    ids = IdMaker(clock.now, Random(1).getrandbits)
    for _ in range(TASKS // 500):
        await engine.put([NewTask(id=ids(), handler="x", params=f'{{"a":"{PADDING}"}}') for _ in range(500)])
    while (await engine.cancel(EVERYTHING, limit=1000)).more:
        pass


async def pruned(engine: SqliteEngine, *, leading: bool = True) -> None:
    """All of them, and then some rounds of a leader that finds nothing."""
    session = await engine.open_session(SessionInfo(host="box", pid=1))
    led = await engine.campaign(session.number)
    assert led is not None
    term = led.term if leading else None
    while (await engine.prune(EVERYTHING, limit=1000, term=term)).more:
        pass
    for _ in range(5):
        await engine.prune(EVERYTHING, limit=1000, term=term)


async def size_after(file: Path, *, leading: bool = True) -> tuple[int, int]:
    """The pages of the file before and after its tasks were pruned."""
    clock = FakeClock()
    engine = SqliteEngine(file, clock=clock)
    await engine.open()
    try:
        await filled(engine, clock)
        before = pages(file)
        await pruned(engine, leading=leading)
        return before, pages(file)
    finally:
        await engine.close()


def pages(file: Path) -> int:
    connection = sqlite3.connect(file)
    (count,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    return int(count)


async def test_a_pruned_store_gets_smaller_and_keeps_a_reserve(tmp_path: Path) -> None:
    before, after = await size_after(tmp_path / "store.db")
    assert before > 4000
    assert after < before * 0.7
    assert after >= 2000


async def test_only_the_leader_makes_it_smaller(tmp_path: Path) -> None:
    """A person who prunes waits for an answer."""
    before, after = await size_after(tmp_path / "store.db", leading=False)
    assert after >= before


async def test_a_file_of_an_earlier_release_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA auto_vacuum = NONE")
    connection.execute("CREATE TABLE old (a)")
    connection.commit()
    connection.close()
    before, after = await size_after(file)
    assert after >= before
    whole = sqlite3.connect(file)
    assert whole.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    whole.close()
