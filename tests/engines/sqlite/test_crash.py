"""kill -9 of a writer: acknowledged tasks are stored, and the file is not damaged."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pitboss.model.filter import EVERYTHING
from tests.engines.sqlite.store import opened

pytestmark = pytest.mark.fresh_loop

_WRITE = """
import asyncio, sys
from pathlib import Path
from tests.engines.sqlite.store import asking, new, opened, session_of

async def main():
    async with opened(Path(sys.argv[1])) as engine:
        session = await session_of(engine)
        while True:
            placed = await engine.put([new(), new()])
            print(*(one.id for one in placed), flush=True)
            await engine.claim(asking(session))

asyncio.run(main())
"""
_ACKNOWLEDGED = 50


def _acknowledged_until_killed(path: Path) -> list[str]:
    command = [sys.executable, "-c", _WRITE, str(path)]
    writer = subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    seen = [writer.stdout.readline() for _ in range(_ACKNOWLEDGED)]
    writer.kill()
    rest, _ = writer.communicate()
    # The last line may be incomplete.
    complete = [line for line in (*seen, *rest.splitlines(keepends=True)) if line.endswith("\n")]
    return " ".join(complete).split()


async def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    ids = _acknowledged_until_killed(path)
    async with opened(path) as engine:
        assert None not in await engine.get(ids)
        figures = {state: n for queue in await engine.queues() for state, n in queue.counts.items()}
        assert sum(figures.values()) == (await engine.count(EVERYTHING)).number
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert figures == dict(connection.execute("SELECT state, count(*) FROM pitboss_tasks GROUP BY state"))
