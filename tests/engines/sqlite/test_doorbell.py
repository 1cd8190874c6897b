"""Doorbells from one process to another."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from tests.engines.sqlite.store import asking, new, opened, session_of

pytestmark = pytest.mark.fresh_loop

_PUT = """
import asyncio, sys
from pathlib import Path
from tests.engines.sqlite.store import new, opened

async def main():
    async with opened(Path(sys.argv[1])) as engine:
        await engine.put([new(queue=sys.argv[2])])

asyncio.run(main())
"""


async def _put_elsewhere(path: Path, queue: str) -> None:
    root = str(Path(__file__).parents[3])
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PUT, str(path), queue, cwd=root, env={**os.environ, "PYTHONPATH": root}
    )
    assert await child.wait() == 0


@pytest.mark.parametrize("folder", ["short", "a-folder-with-a-rather-long-name-" * 6])
async def test_a_put_of_another_process_rings(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "s.db"
    path.parent.mkdir()
    async with opened(path) as engine:
        await session_of(engine)
        waiting = asyncio.create_task(engine.wait(["mail"], 20))
        await asyncio.sleep(0)
        await _put_elsewhere(path, "mail")
        assert await waiting


async def test_a_ring_between_claim_and_wait_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine:
        session = await session_of(engine)
        await engine.wait(None, 0)
        assert (await engine.claim(asking(session))).claims == []
        await _put_elsewhere(path, "default")
        assert await engine.wait(["default"], 20)
        assert not await engine.wait(["default"], 0.01)


async def test_other_queues_do_not_ring(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine, opened(path) as other:
        await session_of(engine)
        await engine.wait(None, 0)
        await other.put([new(queue="b")])
        assert not await engine.wait(["a"], 0.05)
        assert await engine.wait(["b"], 5)


async def test_after_many_rings_all_waiters_are_woken(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine, opened(path) as other:
        await session_of(engine)
        await engine.wait(None, 0)
        for _ in range(600):
            other.ring(["noise"])
        other.ring(["mail"])
        assert await engine.wait(["mail"], 5)


async def test_dead_bells_are_swept_away_and_living_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine, opened(path) as other:
        await session_of(engine)
        await engine.wait(None, 0)
        folder = tmp_path / "s.db-pitboss"
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        dead.bind(str(folder / "1-0.bell"))
        dead.close()
        other.ring(["mail"])
        assert [entry.name.split("-")[0] for entry in folder.glob("*.bell")] == [str(os.getpid())]
    assert list(folder.glob("*.bell")) == []


async def test_closing_wakes_all_waiters(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        waiting = asyncio.create_task(engine.wait(None, 20))
        await asyncio.sleep(0)
        await engine.close()
        assert await waiting
