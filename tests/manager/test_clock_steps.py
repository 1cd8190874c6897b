"""The clock of a host, or of a PostgreSQL server, is set while managers work. Times are taken by a steady clock."""

import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pitboss import wiring
from pitboss.engines.capabilities import resources_of
from pitboss.engines.postgres import PostgresEngine
from pitboss.model.duration import SECOND
from pitboss.model.limits import Window
from pitboss.model.resource import USE_WITHIN, Leased, Limits, NewResource, PoolRules, Shortage, Want
from pitboss.model.states import State
from pitboss.model.task import NewTask
from tests.manager.cluster import Cluster
from tests.servers.faketime import WallClock
from tests.servers.postgres import PostgresServer

VISITORS = str(Path(__file__).with_name("visitors.py"))
VISITS, WORK = 12, 40
HOUR = 3600
STEPS = {
    20: "the clock was set ahead by 20s",
    HOUR: "the clock was set ahead by 1h",
    -HOUR: "the clock was set back by 1h",
}
# From the grant to the arrival, at most: on a busy machine a process may stand still for a second.
_TRAVEL = 2


class FarSide:
    """Notes what arrives, and when."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.seen: list[tuple[float, str, str, str]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while text := self._socket.recv(1000).decode():
            kind, site, about = text.split()
            self.seen.append((time.monotonic(), kind, site, about))

    def times(self, kind: str, site: str | None = None) -> list[float]:
        return [at for at, what, where, _ in self.seen if what == kind and site in (None, where)]

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()


@pytest.fixture
def far_side() -> Iterator[FarSide]:
    side = FarSide()
    yield side
    side.close()


def test_only_the_wall_clock_is_faked(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    clock.step(HOUR)
    program = (
        "import time, pathlib;"
        "print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME));"
        "print(pathlib.Path('/proc/uptime').read_text().split()[0])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=clock.environment, capture_output=True, text=True, check=True, timeout=30
    )
    wall, monotonic, since_boot, uptime = map(float, ran.stdout.split())
    assert abs(wall - time.time() - HOUR) < 20
    assert abs(monotonic - time.monotonic()) < 20
    assert abs(since_boot - uptime) < 20
    assert abs(since_boot - time.clock_gettime(time.CLOCK_BOOTTIME)) < 20


def test_steps_of_the_hosts_clock_cost_nothing_on_sqlite(tmp_path: Path, far_side: FarSide) -> None:
    clock = WallClock(tmp_path)
    cluster = Cluster(f"sqlite:///{tmp_path}/shop.db", tmp_path, VISITORS)
    cluster.environment = {**clock.environment, "FAR_SIDE": str(far_side.port)}
    try:
        _work_through_steps(cluster, clock, far_side)
    finally:
        cluster.close()


def test_steps_of_the_servers_clock_cost_nothing_on_postgres(
    tmp_path: Path, far_side: FarSide, faked_server: tuple[PostgresServer, WallClock]
) -> None:
    server, clock = faked_server
    cluster = Cluster(server.create_database(), tmp_path, VISITORS)
    cluster.environment = {"FAR_SIDE": str(far_side.port)}
    try:
        _work_through_steps(cluster, clock, far_side)
    finally:
        cluster.close()


def _work_through_steps(cluster: Cluster, clock: WallClock, far_side: FarSide) -> None:
    made = _put_all(cluster)
    manager = cluster.manager(workers=2, concurrency=1, ttl="5s")
    cluster.until(lambda: far_side.times("work") and far_side.times("visit"), what="work begins")
    workers = {worker.pid for worker in manager.workers()}
    for step, told in STEPS.items():
        clock.step(step)
        _until_noticed(cluster, far_side, told)
        if step == HOUR:
            cluster.until(lambda: far_side.times("note"), within=5, what="the time of day has come")
    cluster.until(lambda: cluster.finished() == made - 2, what="all is done")
    _check_limits(far_side)
    _check_ends(cluster, far_side)
    assert max(later - earlier for earlier, later in pairwise(far_side.times("work"))) < 5
    assert {worker.pid for worker in manager.workers()} == workers
    assert not manager.said("the session was lost")
    assert [line.partition(";")[0] for line in manager.lines if "the clock was set" in line] == [*STEPS.values()]
    assert manager.end() == 0


def _until_noticed(cluster: Cluster, far_side: FarSide, told: str) -> None:
    """Tasks go on running, and the manager says what happened, both within five seconds."""
    before = len(far_side.seen)
    cluster.until(lambda: len(far_side.seen) > before + 4, within=5, what="work goes on")
    cluster.until(lambda: cluster.managers[0].said(told), within=5, what=told)


def _put_all(cluster: Cluster) -> int:
    """Returns how many. Two of them never run: one after an hour, one at a time that does not come."""
    now = wiring.SystemClock().wall()
    members = [NewResource(name=name) for name in ("one", "two")]
    rules = PoolRules(limits=Limits(windows=(Window(3, 5 * SECOND),)))
    resources = resources_of(cluster.engine)
    cluster.do(resources.declare_pool("sites", rules))
    cluster.do(resources.add_resources("sites", members))
    for number in range(VISITS):
        cluster.put("visit", queue="visits", number=number)
    for number in range(WORK):
        cluster.put("work", number=number)
    cluster.put("twice")
    timed = [
        _note(cluster, "at", run_at=now + HOUR * SECOND // 2),
        _note(cluster, "never", run_at=now + 2 * HOUR * SECOND),
        _note(cluster, "delayed", delay=HOUR * SECOND // 2),
    ]
    cluster.do(cluster.engine.put(timed))
    return VISITS + WORK + 1 + len(timed)


def _note(cluster: Cluster, text: str, **when: Any) -> NewTask:
    return NewTask(id=cluster.new_id(), handler="note", params=f'{{"text":"{text}"}}', priority=-1, **when)


def _check_limits(far_side: FarSide) -> None:
    """No three visits to a site and a fourth within five seconds, less what the way to it takes."""
    for site in ("one", "two"):
        times = sorted(far_side.times("visit", site))
        gaps = [fourth - first for first, fourth in zip(times, times[3:], strict=False)]
        assert gaps
        assert min(gaps) > 5 - _TRAVEL


def _check_ends(cluster: Cluster, far_side: FarSide) -> None:
    """Each ran once; the time of day was followed, the delay was not shortened."""
    assert [task.error for task in cluster.tasks() if task.state is State.FAILED] == []
    assert cluster.counts() == {State.COMPLETED: VISITS + WORK + 2, State.SCHEDULED: 2}
    ran = Counter((kind, about) for _, kind, _, about in far_side.seen)
    assert {what: times for what, times in ran.items() if times > 1} == {}
    assert {about for _, kind, _, about in far_side.seen if kind == "note"} == {"at"}
    first, second = far_side.times("twice")
    assert second - first > 2 - _TRAVEL


async def test_windows_on_postgres_neither_open_early_nor_close_for_an_hour(
    faked_server: tuple[PostgresServer, WallClock],
) -> None:
    server, clock = faked_server
    engine = PostgresEngine(server.create_database())
    await engine.open()
    try:
        rules = PoolRules(limits=Limits(windows=(Window(1, 60 * SECOND),)))
        await engine.declare_pool("sites", rules)
        await engine.add_resources("sites", [NewResource(name="one")])
        assert isinstance(await engine.acquire("sites", Want(), 30 * SECOND, lease="a"), Leased)
        await engine.release("a", None)
        began = engine.clock.now()
        for step in (HOUR, -2 * HOUR, HOUR, 20, -20):
            clock.step(step)
            short = await engine.acquire("sites", Want(), 30 * SECOND, lease="b")
            assert isinstance(short, Shortage)
            assert short.until is not None
            assert short.until <= began + 61 * SECOND + USE_WITHIN
            assert abs(engine.clock.now() - began) < 30 * SECOND
            assert abs(engine.clock.wall() - clock.offset * SECOND - time.time() * SECOND) < 2 * SECOND
    finally:
        await engine.close()
