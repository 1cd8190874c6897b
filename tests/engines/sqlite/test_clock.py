"""The store's clock: shared by all that open the file, apart from the wall clock, and never going back."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from pitboss.engines.host_clock import SystemClock
from pitboss.engines.protocol import HostClock
from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.task import Task
from tests.engines.sqlite.store import new, opened

_HOUR = 3600 * SECOND
_START: Moment = 1_800_000_000 * SECOND


class Host:
    """A host whose boots and clocks the test decides; `process` is the clock of one process on it."""

    def __init__(self) -> None:
        self.boot_id, self.up, self.wall = "first", 100 * SECOND, _START

    def goes_on(self, by: Span) -> None:
        self.up, self.wall = self.up + by, self.wall + by

    def boots(self, boot_id: str, *, wall: Moment) -> None:
        self.boot_id, self.up, self.wall = boot_id, 5 * SECOND, wall

    def process(self) -> "Process":
        return Process(self)


class Process:
    def __init__(self, host: Host) -> None:
        self._host, self.boot_id = host, host.boot_id
        self._offset = host.wall - host.up

    def now(self) -> Moment:
        return self.uptime() + self._offset

    def wall(self) -> Moment:
        return self._host.wall

    def uptime(self) -> Span:
        return self._host.up

    def set_offset(self, offset: Span) -> None:
        self._offset = offset


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def _stored(engine: SqliteEngine, **options: object) -> Task:
    task = new(**options)
    await engine.put([task])
    (found,) = await engine.get([task.id])
    assert found is not None
    return found


def test_the_clock_of_this_host_has_what_the_store_needs() -> None:
    clock = SystemClock()
    assert isinstance(clock, HostClock)
    assert clock.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(clock.uptime() / SECOND - float(Path("/proc/uptime").read_text().split()[0])) < 1
    assert abs(clock.wall() - clock.now()) < SECOND


async def test_the_clock_begins_at_the_wall_clock(file: Path) -> None:
    host = Host()
    async with opened(file, clock=host.process()) as engine:
        assert (await _stored(engine)).created_at == _START == engine.clock.now()


async def test_processes_share_the_clock_though_the_wall_clock_was_set_in_between(file: Path) -> None:
    host = Host()
    async with opened(file, clock=host.process()) as first:
        host.wall += _HOUR
        host.goes_on(SECOND)
        async with opened(file, clock=host.process()) as second:
            assert first.clock.now() == second.clock.now() == _START + SECOND
            assert (await _stored(second)).created_at == _START + SECOND


@pytest.mark.parametrize("step", [_HOUR, -_HOUR, 20 * SECOND])
async def test_only_times_of_day_follow_a_step(file: Path, step: Span) -> None:
    """A process that has not noticed the step yet, and one that opens the file after it, agree."""
    host = Host()
    async with opened(file, clock=host.process()) as early:
        at = await _stored(early, run_at=_START + 2 * _HOUR)
        delayed = await _stored(early, delay=2 * _HOUR)
        host.wall += step
        async with opened(file, clock=host.process()) as late:
            await late.reclaim()
            moved, same = await late.get([at.id, delayed.id])
            assert moved is not None
            assert moved.run_at == _START + 2 * _HOUR - step
            assert same is not None
            assert same.run_at == delayed.run_at
            added = await _stored(early, run_at=host.wall + _HOUR)
            assert added.run_at == early.clock.now() + _HOUR
            await early.reclaim()
            (unmoved,) = await early.get([added.id])
            assert unmoved == added


async def test_a_step_that_is_rolled_back_is_noticed_again(file: Path) -> None:
    host = Host()
    async with opened(file, clock=host.process()) as engine:
        at = await _stored(engine, run_at=_START + 2 * _HOUR)
        host.wall += _HOUR

        def fails(_: object) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(engine.run_sync, "broken", fails)
        await engine.reclaim()
        (moved,) = await engine.get([at.id])
        assert moved is not None
        assert moved.run_at == _START + _HOUR


async def test_after_a_boot_the_clock_is_the_wall_clocks_time(file: Path) -> None:
    host = Host()
    async with opened(file, clock=host.process()) as engine:
        host.wall += _HOUR
        at = await _stored(engine, run_at=host.wall + 3 * _HOUR)
        assert at.run_at == _START + 3 * _HOUR
    host.boots("second", wall=host.wall + 60 * SECOND)
    async with opened(file, clock=host.process()) as engine:
        assert engine.clock.now() == host.wall
        (kept,) = await engine.get([at.id])
        assert kept is not None
        assert kept.run_at == _START + 4 * _HOUR


@pytest.mark.parametrize("boot_id", ["second", "first"])
async def test_the_clock_never_goes_back_across_boots(file: Path, boot_id: str) -> None:
    """Also on a host that does not name its boots: a smaller uptime gives the new boot away."""
    host = Host()
    async with opened(file, clock=host.process()) as engine:
        for _ in range(5):
            host.goes_on(SECOND // 2)
            await _stored(engine)
        last = await _stored(engine)
    host.boots(boot_id, wall=_START - _HOUR)
    async with opened(file, clock=host.process()) as engine:
        assert last.created_at < engine.clock.now() <= last.created_at + 2 * SECOND
        assert (await _stored(engine, run_at=_START)).run_at == engine.clock.now() + _HOUR


async def test_an_idle_manager_writes_nothing_for_the_clock(file: Path) -> None:
    host = Host()
    async with opened(file, clock=host.process()) as engine:
        log = file.with_name(file.name + "-wal")
        size = log.stat().st_size
        for _ in range(5):
            host.goes_on(2 * SECOND)
            await engine.reclaim()
        assert log.stat().st_size == size


async def test_tasks_in_a_callers_transaction_use_the_clock_too(file: Path) -> None:
    host = Host()
    async with opened(file, clock=host.process()) as engine:
        host.wall += _HOUR
        await engine.reclaim()
        task = new(run_at=host.wall + 60 * SECOND)
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        engine.put_within(connection, [task])
        connection.execute("COMMIT")
        connection.close()
        (stored,) = await engine.get([task.id])
        assert stored is not None
        assert stored.run_at == engine.clock.now() + 60 * SECOND
