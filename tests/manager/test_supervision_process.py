"""One worker process: drain and kill also count while it is being started."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pitboss.manager.worker_process import WorkerProcess, crash_error
from pitboss.worker.main import WorkerSpec
from tests.manager.cluster import TARGET, alive


@asynccontextmanager
async def spawning() -> AsyncIterator[tuple[WorkerProcess, asyncio.Task[None]]]:
    """A worker whose process is being started."""
    spec = WorkerSpec(name="default-1", target=TARGET, concurrency=1, manager=os.getpid())
    worker = WorkerProcess(spec, 1, (0, 0), {}, lambda _worker, _message: None)
    spawn = asyncio.create_task(worker.spawn())
    await asyncio.sleep(0)
    assert not worker.pid
    try:
        yield worker, spawn
    finally:
        await spawn
        worker.kill()
        await worker.ended()


def open_files() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


async def test_a_worker_that_is_sent_away_while_it_is_made_ends() -> None:
    async with spawning() as (worker, spawn):
        worker.drain()
        await spawn
        async with asyncio.timeout(20):
            assert await worker.ended() == 0
        assert worker.ready.is_set()


async def test_a_worker_that_is_killed_while_it_is_made_ends() -> None:
    async with spawning() as (worker, spawn):
        worker.kill()
        await spawn
        async with asyncio.timeout(5):
            assert await worker.ended() == -9
        assert not alive(worker.pid)


async def test_a_system_without_room_for_a_process_costs_no_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    spec = WorkerSpec(name="default-1", target=TARGET, concurrency=1, manager=os.getpid())
    before = open_files()
    for _ in range(3):
        worker = WorkerProcess(spec, 1, (0, 0), {}, lambda _worker, _message: None)
        with pytest.raises(BlockingIOError):
            await worker.spawn()
    assert open_files() == before


async def test_a_worker_killed_by_a_signal_without_a_name_is_reported_by_its_number() -> None:
    spec = WorkerSpec(name="default-1", target=TARGET, concurrency=1, manager=os.getpid())
    worker = WorkerProcess(spec, 1, (0, 0), {}, lambda _worker, _message: None)
    assert crash_error(worker, -41).message == "worker default-1 (pid 0) was killed by signal 41 while it ran this task"
