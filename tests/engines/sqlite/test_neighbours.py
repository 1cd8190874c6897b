"""Several engines in one process, and other processes that come and go. Regression: opening a second engine dropped
SQLite's locks of the first, so that a short-lived process removed the write-ahead log that was still in use."""

import asyncio
import subprocess
import sys
from pathlib import Path

from pitboss import wiring
from pitboss.engines.sqlite.lock import WriterLock
from pitboss.model.filter import EVERYTHING
from pitboss.model.task import NewTask

VISIT = """
import asyncio, sys
from pitboss import wiring
from pitboss.model.task import NewTask

async def visit():
    engine = wiring.make_engine(sys.argv[1])
    await engine.open()
    await engine.put([NewTask(id=sys.argv[2], handler="x")])
    await engine.close()

asyncio.run(visit())
"""


def identity(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


def visit(url: str, number: int) -> None:
    subprocess.run([sys.executable, "-c", VISIT, url, identity(number)], check=True, timeout=60)


async def test_visitors_leave_the_write_ahead_log_to_those_who_stay(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    first, second = wiring.make_engine(url), wiring.make_engine(url)
    await first.open()
    await first.put([NewTask(id=identity(0), handler="x")])
    await second.open()
    for number in range(1, 4):
        await asyncio.to_thread(visit, url, number)
        assert (await first.count(EVERYTHING)).number == number + 1
        assert (tmp_path / "store.db-wal").exists()
    await first.put([NewTask(id=identity(9), handler="x")])
    await first.close()
    await second.close()
    again = wiring.make_engine(url)
    await again.open()
    assert (await again.count(EVERYTHING)).number == 5
    await again.close()


async def test_opening_a_store_that_needs_no_change_waits_for_no_writer(tmp_path: Path) -> None:
    """Regression: the first `enqueue(within=…)` of a process waited for a writer that waited for its transaction."""
    url = f"sqlite:///{tmp_path}/shop.db"
    first = wiring.make_engine(url)
    await first.open()
    lock = WriterLock(tmp_path / "shop.db-pitboss", 5)
    await asyncio.to_thread(lock.acquire)
    try:
        second = wiring.make_engine(url)
        async with asyncio.timeout(5):
            await second.open()
            assert await second.queues() == []
    finally:
        lock.release()
        lock.close()
    await second.close()
    await first.close()
