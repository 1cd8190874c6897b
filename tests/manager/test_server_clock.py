"""Clients of one PostgreSQL server whose own uptime stood still, and what the others know. The server's wall clock and
the uptimes are the test's."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pitboss.engines.host_clock import SystemClock
from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.postgres.server_clock import ServerClock
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.testing.plugin import InLoop
from tests.servers.faketime import WallClock
from tests.servers.postgres import PostgresServer

# A clock that is held back loses at most the time that a look may take.
_LOSS = SECOND // 2


class Host(SystemClock):
    ahead: Span = 0

    def uptime(self) -> Span:
        return super().uptime() + self.ahead


class Process:
    """One process with the store open, on a host of its own."""

    def __init__(self, dsn: str) -> None:
        self.engine, self.host = PostgresEngine(dsn, listen=False), Host()
        assert isinstance(self.engine.clock, ServerClock)
        self.clock = self.engine.clock
        self.clock._host = self.host

    async def now(self) -> Moment:
        """The store's clock, as the server answers a statement of this process."""
        found: Moment = (await self.engine._write("server_now"))[0][0]
        return found


class Scene(InLoop):
    """A server and two processes."""

    def __init__(self, server: PostgresServer, wall: WallClock) -> None:
        self.dsn, self.wall = server.create_database(), wall
        self.paused, self.other = Process(self.dsn), Process(self.dsn)

    async def __aexit__(self, *exc: object) -> None:
        await self.paused.engine.close()
        await self.other.engine.close()

    def pass_time(self, seconds: int, *hosts: Process) -> None:
        """Time passes for the server and for these; the other hosts stand still."""
        self.wall.step(seconds)
        for process in hosts:
            process.host.ahead += seconds * SECOND

    async def work(self, seconds: int, *hosts: Process) -> None:
        """These make a statement every second."""
        for _ in range(seconds):
            self.pass_time(1, *hosts)
            for process in hosts:
                await process.now()

    async def stored(self) -> tuple[Moment, Span]:
        """The store's clock now, and its shift."""
        async with await psycopg.AsyncConnection.connect(self.dsn) as connection:
            found = await connection.execute(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift, shift FROM pitboss.clock"
            )
            row = await found.fetchone()
        assert row is not None
        return row[0], row[1]

    async def agreed(self) -> Span:
        """The stored shift, by which all live from now on."""
        shifts: set[Span] = set()
        for _ in range(3):
            for process in (self.paused, self.other):
                answered, (stored, shift) = await process.now(), await self.stored()
                assert abs(answered - stored) < SECOND
                assert abs(process.clock.now() - stored) < SECOND
                shifts.add(shift)
            self.pass_time(2, self.paused, self.other)
        (only,) = shifts
        return only


@pytest.fixture
def scene(faked_server: tuple[PostgresServer, WallClock]) -> Scene:
    return Scene(*faked_server)


async def _open(*processes: Process) -> None:
    for process in processes:
        await process.engine.open()


@pytest.mark.parametrize("seconds", [3, 20])
async def test_a_host_that_stood_still_takes_the_stores_clock_as_it_is(scene: Scene, seconds: int) -> None:
    await _open(scene.paused, scene.other)
    await scene.work(3, scene.paused, scene.other)
    await scene.work(seconds, scene.other)
    assert await scene.agreed() == 0


async def test_steps_are_made_up_for_by_whoever_notices_first(scene: Scene) -> None:
    """Each time it is the one that does not know yet what the other stored at the step before."""
    await _open(scene.paused, scene.other)
    await scene.work(3, scene.paused, scene.other)
    before = (await scene.stored())[0]
    for step, process in ((3, scene.paused), (3600, scene.other), (-3600, scene.paused), (20, scene.other)):
        scene.pass_time(step)
        assert -_LOSS < await process.now() - before < 2 * SECOND
    assert -24 * SECOND < await scene.agreed() < -22 * SECOND


async def test_alone_a_host_that_stood_still_only_holds_the_stores_clock_back(scene: Scene) -> None:
    """It cannot know better. Windows open late, and never early; who comes later lives by the same clock."""
    await _open(scene.paused)
    await scene.work(3, scene.paused)
    before = await scene.paused.now()
    scene.pass_time(3)
    assert -_LOSS < await scene.paused.now() - before < SECOND
    await _open(scene.other)
    assert -4 * SECOND < await scene.agreed() < -2 * SECOND


async def test_one_that_came_after_the_last_comparison_proves_nothing(scene: Scene) -> None:
    """The server's clock may have been set right before it came."""
    await _open(scene.paused)
    await scene.work(3, scene.paused)
    scene.pass_time(5)
    await _open(scene.other)
    await scene.work(1, scene.other)
    assert -7 * SECOND < await scene.agreed() < -5 * SECOND


async def test_a_step_right_after_a_slow_statement_is_noticed(scene: Scene) -> None:
    """Statements may come late then. An hour is not late: all claims would have expired."""
    await _open(scene.paused)
    await scene.work(3, scene.paused)
    before = await scene.paused.now()
    scene.paused.clock.refused()
    await scene.paused.now()
    scene.pass_time(3600)
    assert -_LOSS < await scene.paused.now() - before < 2 * SECOND


@pytest.mark.parametrize("refused", [False, True])
async def test_of_many_calls_at_once_one_looks(scene: Scene, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    process, looks = scene.paused, 0
    await _open(process)
    look: Callable[[], Any] = process.clock.look

    def counted() -> Any:
        nonlocal looks
        looks += 1
        return look()

    monkeypatch.setattr(process.clock, "look", counted)
    scene.pass_time(2, *([] if refused else [process]))
    if refused:
        process.clock.refused()
    await asyncio.gather(*(process.now() for _ in range(20)), *(process.engine.queues() for _ in range(20)))
    assert looks == 1
