"""The HTTP server as a side process of a manager: alone with a stand-in, and with real managers and a real server."""

import asyncio
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest
from playwright.sync_api import expect, sync_playwright

from pitboss import wiring
from pitboss.config import ServerSpec
from pitboss.manager.http_server import HttpServer
from pitboss.model.duration import SECOND
from pitboss.model.pool import PoolSpec
from pitboss.model.snapshot import ServerFigures, Snapshot, read
from pitboss.testing.plugin import InLoop
from tests.manager.cluster import Cluster, ManagerProcess, alive, pool
from tests.servers.browser import ARGUMENTS, find_chromium

STAND_IN = "tests.manager.http_child"
# Seconds until a server that was killed serves pages again.
BACK_WITHIN = 2.0
SPEC = ServerSpec(store="postgresql://ann:hunter2@db/jobs")


class Bench(InLoop):
    """One server, and everything that it told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.server: HttpServer

    async def __aenter__(self) -> "Bench":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop(0)
        assert not [child for child in psutil.Process().children() if STAND_IN in child.cmdline()]

    def make(self, spec: ServerSpec | None = SPEC) -> HttpServer:
        rules = PoolSpec(name="http", restart_delay=SECOND // 100)
        clock = wiring.SystemClock()
        self.server = HttpServer(spec, clock=clock, tell=self.told.append, module=STAND_IN, rules=rules)
        return self.server

    async def running(self, spec: ServerSpec | None = SPEC) -> HttpServer:
        server = self.make(spec)
        server.start()
        await self.until(lambda: self.told)
        return server

    @property
    def figures(self) -> ServerFigures:
        found = self.server.figures
        assert found is not None
        return found

    async def until(self, condition: Callable[[], object], within: float = 20.0) -> None:
        limit = asyncio.get_running_loop().time() + within
        while not condition():
            await asyncio.sleep(0.01)
            assert asyncio.get_running_loop().time() < limit, f"{self.server.figures}\n{self.told}"


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_it_tells_where_it_listens_and_the_store_stays_secret(bench: Bench) -> None:
    await bench.running()
    url = f"http://127.0.0.1:8000/{SPEC.store}"
    assert bench.told == [f"the HTTP API is at {url} (docs at {url}/docs)"]
    assert (bench.figures.state, bench.figures.url) == ("running", url)
    command = psutil.Process(bench.figures.pid).cmdline()
    assert STAND_IN in command
    assert not any("hunter2" in word for word in command), "everyone on the host can read it"


async def test_a_port_that_it_got_is_shown_and_one_that_it_should_get_before(bench: Bench) -> None:
    server = bench.make(msgspec.structs.replace(SPEC, port=0, store="x"))
    assert (bench.figures.url, bench.figures.state) == ("", "stopped")
    server.start()
    await bench.until(lambda: bench.told)
    assert bench.figures.url == "http://127.0.0.1:4321/x"


async def test_without_settings_there_is_none_until_a_reload_has_some(bench: Bench) -> None:
    server = bench.make(None)
    server.start()
    await asyncio.sleep(0.05)
    assert (server.figures, bench.told) == (None, [])
    server.change(SPEC)
    await bench.until(lambda: bench.told)
    server.change(None)
    assert server.figures is None
    await bench.until(lambda: not [one for one in psutil.Process().children() if STAND_IN in one.cmdline()])


async def test_one_that_cannot_start_is_told_once_with_what_to_do_and_tried_again_at_a_reload(bench: Bench) -> None:
    broken = msgspec.structs.replace(SPEC, release="break")
    server = await bench.running(broken)
    assert bench.told == [
        "the HTTP server stays down until the manager is reloaded or restarted: it cannot start: port 8000 is taken; "
        "choose another port with --port or [http] port, or leave the server out with --no-http"
    ]
    assert (bench.figures.state, bench.figures.why) == ("crashed", "it cannot start: port 8000 is taken")
    server.change(broken)
    await bench.until(lambda: len(bench.told) == 2)
    server.change(SPEC)
    await bench.until(lambda: bench.figures.state == "running")
    assert bench.figures.why == ""


async def test_a_crash_restarts_it(bench: Bench) -> None:
    await bench.running(msgspec.structs.replace(SPEC, release="die"))
    await bench.until(lambda: bench.figures.restarts)
    assert "the HTTP server ended with exit code 3; it starts again at once" in bench.told


async def test_a_reload_replaces_it_only_if_its_settings_changed(bench: Bench) -> None:
    server = await bench.running()
    before = bench.figures.pid
    server.change(msgspec.structs.replace(SPEC, manager=0))
    await asyncio.sleep(0.05)
    assert (bench.figures.pid, bench.figures.state) == (before, "running")
    server.change(msgspec.structs.replace(SPEC, port=8001))
    await bench.until(lambda: len(bench.told) == 2)
    assert "http://127.0.0.1:8001/" in bench.figures.url
    assert not alive(before)
    assert bench.figures.restarts == 0


async def test_it_starts_after_the_session_and_after_the_workers(bench: Bench) -> None:
    server, session, busy = bench.make(), asyncio.Event(), [True]
    starting = asyncio.create_task(server.start_after(session, lambda: busy[0]))
    await asyncio.sleep(0.05)
    session.set()
    await asyncio.sleep(0.05)
    assert bench.figures.state == "stopped"
    busy[0] = False
    await starting
    await bench.until(lambda: bench.figures.state == "running")


async def test_settings_that_change_before_the_start_are_those_that_it_starts_with(bench: Bench) -> None:
    server = bench.make()
    server.change(msgspec.structs.replace(SPEC, port=8002))
    assert bench.figures.state == "stopped"
    server.start()
    await bench.until(lambda: bench.told)
    assert "http://127.0.0.1:8002/" in bench.figures.url


def test_old_snapshots_without_a_server_can_be_read() -> None:
    found = read('{"target":"app.py","version":"0.1"}')
    assert found is not None
    assert (found.http, found.runs_tasks) == (None, True)
    told = Snapshot(http=ServerFigures(url="http://x", state="a state of a later release"))
    assert read(msgspec.json.encode(told).decode()) == told


def test_the_manager_loads_no_web_framework() -> None:
    heavy = ("fastapi", "starlette", "uvicorn", "httptools")
    code = f"import sys, pitboss.cli.up_run; print(*(name for name in {heavy} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    assert loaded.split() == []


# With real managers and the real server.


@pytest.fixture
def served(sqlite_cluster: Cluster, tmp_path: Path) -> Cluster:
    sqlite_cluster.http = ServerSpec(store=f"sqlite:///{tmp_path}/shop.db", port=0)
    return sqlite_cluster


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A port that another process has."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def server_of(cluster: Cluster) -> ServerFigures | None:
    shots = [shot for shot in cluster.snapshots() if shot.target]
    return shots[0].http if shots else None


def running(cluster: Cluster) -> ServerFigures | None:
    found = server_of(cluster)
    return found if found is not None and found.state == "running" else None


def up(cluster: Cluster) -> tuple[ManagerProcess, ServerFigures]:
    manager = cluster.manager(pool(workers=1))
    cluster.until(lambda: running(cluster))
    found = running(cluster)
    assert found is not None
    return manager, found


def health(url: str) -> int:
    with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
        return int(answer.status)


def test_a_manager_serves_restarts_and_stops_its_server(served: Cluster) -> None:
    manager, first = up(served)
    assert health(first.url) == 200
    lines = [line for line in manager.lines if "is ready (pid" in line or "the HTTP API is at" in line]
    assert "is ready" in lines[0], "workers come first"
    psutil.Process(first.pid).kill()
    served.until(lambda: (found := running(served)) and found.pid != first.pid)
    served.put("quick", 3, number=1)
    served.until(lambda: served.finished() == 3)
    second = running(served)
    assert second is not None
    assert (second.restarts, health(second.url)) == (1, 200)
    assert manager.end() == 0
    assert not alive(second.pid)


def test_open_tabs_go_on_after_their_server_was_killed(served: Cluster, taken: socket.socket) -> None:
    assert served.http is not None
    served.http = msgspec.structs.replace(served.http, port=taken.getsockname()[1])
    taken.close()
    manager, server = up(served)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        tabs = [browser.new_context().new_page()]
        tabs += [tabs[0].context.new_page() for _ in range(2)]
        for page in tabs:
            page.goto(f"{server.url}/ui/queues")
            expect(page.locator("#live")).to_have_text("Live")
        psutil.Process(server.pid).kill()
        # The browser's driver has the loop of this thread.
        with ThreadPoolExecutor() as other:
            took = other.submit(seconds_until_served, manager, server).result()
            other.submit(served.put, "quick", 3, queue="later", number=1).result()
        for page in tabs:
            expect(page.locator("#queue-later")).to_be_visible(timeout=30_000)
            expect(page.locator("#live")).to_have_text("Live", timeout=30_000)
        browser.close()
    assert took < BACK_WITHIN


def seconds_until_served(manager: ManagerProcess, killed: ServerFigures) -> float:
    """From the end of a server until the next one shows pages. Other tests take the processors too: counted are the
    time until it was started, and what it computed since then."""
    began = time.monotonic()
    while not (new := [one for one in servers(manager) if one.pid != killed.pid]):
        assert time.monotonic() - began < BACK_WITHIN, "no server was started"
        time.sleep(0.01)
    started, (process,) = time.monotonic() - began, new
    while time.monotonic() - began < 15 * BACK_WITHIN:
        with suppress(OSError):
            urllib.request.urlopen(f"{killed.url}/ui", timeout=5).read()
            times = process.cpu_times()
            return started + times.user + times.system
        time.sleep(0.02)
    raise AssertionError("no page came")


def servers(manager: ManagerProcess) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(manager.process.pid).children():
        with suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE and "pitboss.cli.http_server" in one.cmdline():
                found.append(one)
    return found


def test_the_server_ends_with_a_manager_that_is_killed(served: Cluster) -> None:
    manager, server = up(served)
    manager.process.kill()
    served.until(lambda: not alive(server.pid))


def test_a_taken_port_is_told_and_the_manager_goes_on(served: Cluster, taken: socket.socket) -> None:
    assert served.http is not None
    served.http = msgspec.structs.replace(served.http, port=taken.getsockname()[1])
    manager = served.manager(pool(workers=1))
    served.until(lambda: manager.said("the HTTP server stays down"))
    served.put("quick", number=1)
    served.until(lambda: served.finished() == 1)
    served.until(lambda: (found := server_of(served)) and found.state == "crashed")
    taken.close()
    manager.reload(manager.plan)
    served.until(lambda: running(served))
    assert manager.end() == 0
    assert sum("the HTTP server stays down" in line for line in manager.lines) == 1


def test_a_reload_keeps_the_server_unless_its_settings_changed(served: Cluster) -> None:
    manager, first = up(served)
    manager.reload(manager.plan)
    served.until(lambda: manager.said("reloaded"))
    same = running(served)
    assert same is not None
    assert same.pid == first.pid
    assert served.http is not None
    http = msgspec.structs.replace(served.http, max_body=4096)
    manager.reload(msgspec.structs.replace(manager.plan, http=http))
    served.until(lambda: (found := running(served)) and found.pid != first.pid)
    manager.reload(msgspec.structs.replace(manager.plan, http=None))
    served.until(lambda: server_of(served) is None)
    assert manager.end() == 0
