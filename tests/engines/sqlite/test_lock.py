"""The lock: writers of several processes get equal turns, and none waits for ever."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pitboss.engines.sqlite.lock import WriterLock
from pitboss.model.errors import StoreUnavailable
from tests.engines.sqlite.store import new, opened

_PROCESSES = 4
_SECONDS = 4.0
_BUSY = """
import asyncio, json, sys, time
from pathlib import Path
from tests.engines.sqlite.store import new, opened

async def main():
    waits = []
    async with opened(Path(sys.argv[1])) as engine:
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.monotonic() + float(sys.argv[2])
        while (begun := time.monotonic()) < end:
            engine.put_sync([new()])
            waits.append(time.monotonic() - begun)
    waits.sort()
    print(json.dumps([len(waits), waits[int(len(waits) * 0.99)]]))

asyncio.run(main())
"""


def test_busy_writers_get_equal_turns(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", _BUSY, str(tmp_path / "s.db"), str(_SECONDS)]
    busy = [
        subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(_PROCESSES)
    ]
    for process in busy:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in busy:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in busy]
    mean = sum(n for n, _ in answers) / _PROCESSES
    assert min(n for n, _ in answers) >= mean / 2
    assert max(wait for _, wait in answers) <= 0.25


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from pitboss.engines.sqlite.lock import WriterLock\n"
            "WriterLock(Path(sys.argv[1]), 1).acquire(); print('held', flush=True); time.sleep(60)",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    impatient = WriterLock(tmp_path, 0.05)
    with pytest.raises(StoreUnavailable, match="could not get the write lock"):
        impatient.acquire()
    holder.kill()
    holder.communicate()
    patient = WriterLock(tmp_path, 10)
    patient.acquire()
    patient.release()
    patient.close()


def test_a_lock_that_came_too_late_is_given_back(tmp_path: Path) -> None:
    first, late = WriterLock(tmp_path, 1), WriterLock(tmp_path, 0.05)
    first.acquire()
    with pytest.raises(StoreUnavailable):
        late.acquire()
    first.release()
    third = WriterLock(tmp_path, 10)
    third.acquire()
    third.release()
    late.acquire()
    late.release()
    for lock in (first, late, third):
        lock.close()


@pytest.mark.fresh_loop
async def test_a_lock_that_is_never_released_is_an_error_in_time(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db", lock_timeout=0.05) as engine:
        with (tmp_path / "s.db-pitboss" / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(StoreUnavailable, match="could not get the write lock"):
                await engine.put([new()])
        await engine.put([new()])
