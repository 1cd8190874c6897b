"""A store that goes away is told within two seconds, with what goes on meanwhile, and again when it is back."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pitboss.manager.outages import OutageWatch, Work
from pitboss.model.errors import StoreDamaged, StoreUnavailable
from pitboss.model.happening import Happening, Kind
from pitboss.model.log_settings import LogSettings
from pitboss.model.states import State
from pitboss.testing.virtual import run_virtual
from tests.manager.cluster import TROUBLE, Cluster, ManagerProcess
from tests.servers.postgres import PostgresServer

BEGIN, BACK = "the store does not answer", "the store is back after"


@pytest.fixture
def on_server(durable_dsn: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(durable_dsn, tmp_path, TROUBLE)
    cluster.logs = LogSettings(folder=str(tmp_path / "logs"))
    try:
        yield cluster
    finally:
        cluster.close()


def _logged_outage(cluster: Cluster) -> list[Happening]:
    """What the log of happenings has of it, oldest first."""
    kinds = [Kind.STORE_AWAY, Kind.STORE_BACK]
    cluster.until(lambda: len(cluster.happenings(*kinds)) == 2, what="both ends in the log")
    return cluster.happenings(*kinds)


def _at_work(cluster: Cluster, ttl: str = "15s", seconds: float = 2.5) -> tuple[ManagerProcess, str]:
    """A manager with a task that runs for a while."""
    manager = cluster.manager(workers=1, ttl=ttl)
    (task,) = cluster.put("slow", seconds=seconds)
    cluster.until(lambda: cluster.traced("began"))
    return manager, task


def _told(manager: ManagerProcess) -> list[str]:
    return [line for line in manager.lines if "store" in line or "session" in line]


def _logged(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.rglob("manager*")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_restart_of_the_server_is_told_and_costs_nothing(
    on_server: Cluster, durable_server: PostgresServer, tmp_path: Path
) -> None:
    manager, task = _at_work(on_server, seconds=5)
    durable_server.stop()
    try:
        on_server.until(lambda: manager.said(BEGIN), within=2, what="told within two seconds")
    finally:
        durable_server.start()
    on_server.until(lambda: manager.said(BACK), within=5)
    on_server.until(lambda: on_server.task(task).state is State.COMPLETED)
    begin, back = _told(manager)
    assert "Running tasks go on, and their outcomes are kept" in begin
    assert "the session expires" in begin
    assert "1 task kept running" in back
    assert [line["level"] for line in _logged(tmp_path / "logs") if "the store" in line["event"]] == ["warning", "info"]
    assert (on_server.task(task).attempts, on_server.task(task).losses) == (1, 0)
    first, last = _logged_outage(on_server)
    assert first.text.startswith(BEGIN)
    assert last.text.startswith(BACK)
    assert first.at < last.at


def test_an_outage_beyond_the_session_names_the_cause_first(on_server: Cluster, durable_server: PostgresServer) -> None:
    manager, task = _at_work(on_server, ttl="2s")
    durable_server.stop()
    try:
        on_server.until(lambda: manager.said("the session has expired"), within=10)
    finally:
        durable_server.start()
    on_server.until(lambda: manager.said(BACK), within=5)
    begin, lost, back, *_ = _told(manager)
    assert begin.startswith(BEGIN)
    assert lost.startswith("the store has been away for")
    assert "the session had expired: 1 task of it will run again, at no attempt" in back
    on_server.until(lambda: on_server.task(task).state is State.COMPLETED)
    assert on_server.task(task).attempts == 1


def test_cut_and_refused_connections_are_told(on_server: Cluster, durable_server: PostgresServer) -> None:
    manager, task = _at_work(on_server)
    name = on_server.url.rpartition("/")[2]
    with psycopg.connect(durable_server.dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'".encode())
        try:
            on_server.until(lambda: manager.said(BEGIN), within=2)
            assert not manager.said(BACK)
        finally:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    on_server.until(lambda: manager.said(BACK), within=5)
    begin, back = _told(manager)[:2]
    assert begin.startswith(BEGIN)
    assert back.startswith(BACK)
    on_server.until(lambda: on_server.task(task).state is State.COMPLETED)
    assert on_server.task(task).losses == 0


class _Store:
    """Away while `error` is set."""

    error: StoreUnavailable | None = None

    def on_trouble(self, told: Callable[[StoreUnavailable], None]) -> None:
        self.told = told

    async def probe(self) -> None:
        if self.error is not None:
            raise self.error


class _Scene:
    def __init__(self) -> None:
        self.store, self.lines = _Store(), list[str]()
        self.watch = OutageWatch(
            self.store, warn=self.lines.append, say=self.lines.append, work=lambda: Work(3, 2, 11.0)
        )

    async def away(self, seconds: float) -> None:
        self.store.error = StoreUnavailable("no server", why="refused")
        self.watch.failed(self.store.error)
        self.watch.failed(self.store.error)
        await asyncio.sleep(seconds)
        self.store.error = None
        await asyncio.sleep(0.5)


def _watched(story: Callable[[_Scene], Coroutine[Any, Any, None]]) -> list[str]:
    async def main() -> list[str]:
        scene = _Scene()
        watching = asyncio.create_task(scene.watch.run())
        await story(scene)
        await asyncio.sleep(10)
        watching.cancel()
        return scene.lines

    return run_virtual(main())


def test_a_long_outage_has_a_line_a_minute() -> None:
    begin, *minutes, back = _watched(lambda scene: scene.away(150))
    assert "no server (refused)" in begin
    assert "if it is away for 11 s more, the session expires" in begin
    assert len(minutes) == 2
    assert back.startswith("the store is back after 2m30s: nothing was lost; 3 tasks kept running")
    assert back.endswith("2 kept outcomes can be written now")


def test_short_outages_in_a_row_are_told_together() -> None:
    async def five(scene: _Scene) -> None:
        for _ in range(5):
            await scene.away(0.1)

    begin, back, more = _watched(five)
    assert begin.startswith(BEGIN)
    assert back.startswith(f"{BACK} 0.2 s")
    assert more.startswith("the store was away 4 more times, for 1.0 s in all")


def test_a_second_outage_that_lasts_is_told_too() -> None:
    async def two(scene: _Scene) -> None:
        await scene.away(0.1)
        await scene.away(4)

    assert [line[:18] for line in _watched(two)] == [BEGIN[:18], BACK[:18]] * 2


def test_each_end_of_an_outage_is_passed_on() -> None:
    ends: list[int] = []

    async def three(scene: _Scene) -> None:
        scene.watch.back = lambda: ends.append(1)
        for _ in range(3):
            await scene.away(0.1)

    _watched(three)
    assert len(ends) == 3


def test_damage_is_told_as_damage_and_once() -> None:
    async def damage(scene: _Scene) -> None:
        for _ in range(3):
            scene.watch.failed(StoreDamaged("shop.db is damaged", why="a disk fault", fix="restore a backup"))
            await asyncio.sleep(1)

    (line,) = _watched(damage)
    assert line.startswith("the store is damaged, and waiting does not help: shop.db is damaged")
    assert "restore a backup" in line
