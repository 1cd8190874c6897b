"""Messages to systemd, over a real datagram socket."""

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitboss import config
from pitboss.cli.systemd import Notifier
from pitboss.config import ServiceManager
from pitboss.model.duration import SECOND
from tests.cli.command_line import Process, pitboss


class Listener:
    """systemd's end."""

    def __init__(self, name: str) -> None:
        self.address = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        self._socket.settimeout(30)

    def hear(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def until(self, line: str, *, times: int = 1) -> None:
        """Hear on until this was said."""
        while times:
            times -= line in self.hear()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest) -> Iterator[Listener]:
    with tempfile.TemporaryDirectory(prefix="pb-") as folder:
        name = f"{folder}/notify" if request.param == "path" else f"@pitboss-{os.getpid()}-{id(folder)}"
        found = Listener(name)
        yield found
        found.close()


def test_a_life_from_ready_to_stopping(listener: Listener) -> None:
    notifier = Notifier(ServiceManager(listener.address))
    assert notifier.listening
    notifier.ready("2 workers")
    assert listener.hear() == ["READY=1", "STATUS=2 workers"]
    notifier.status("212 running,\n84 waiting")
    assert listener.hear() == ["STATUS=212 running, 84 waiting"]
    notifier.status("212 running,\n84 waiting")  # said already
    notifier.reloading()
    first, second = listener.hear()
    assert first == "RELOADING=1"
    assert second.startswith("MONOTONIC_USEC=")
    assert int(second.partition("=")[2]) > 0
    notifier.ready()
    assert listener.hear() == ["READY=1"]
    notifier.stopping("waiting for 2 tasks")
    assert listener.hear() == ["STOPPING=1", "STATUS=waiting for 2 tasks"]
    notifier.close()
    notifier.close()
    notifier.ready()


async def test_signs_of_life_come_twice_within_the_limit(listener: Listener) -> None:
    loop = asyncio.get_running_loop()
    notifier = Notifier(ServiceManager(listener.address, SECOND // 10))
    beating = asyncio.create_task(notifier.beat())
    began = loop.time()
    for _ in range(4):
        assert await asyncio.to_thread(listener.hear) == ["WATCHDOG=1"]
    assert 0.14 <= loop.time() - began < 5
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    notifier.close()


async def test_without_a_watchdog_nothing_beats(listener: Listener) -> None:
    notifier = Notifier(ServiceManager(listener.address))
    await notifier.beat()
    notifier.close()
    await Notifier(ServiceManager(None, SECOND)).beat()


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "/nowhere/at/all"])
def test_without_systemd_nothing_happens(address: str | None) -> None:
    notifier = Notifier(ServiceManager(address or None))
    notifier.ready("here")
    notifier.stopping()
    notifier.close()


def test_a_listener_that_does_not_read_does_not_block(listener: Listener) -> None:
    notifier = Notifier(ServiceManager(listener.address))
    for number in range(5000):
        notifier.status(f"{number} done")
    notifier.close()


def test_a_service_from_start_to_stop(listener: Listener, folder: Path) -> None:
    pitboss("init", ".")
    told = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "400000"}
    with Process("up", "--workers", "1", "--quiet", cwd=folder, env=told) as process:
        listener.until("READY=1")
        assert pitboss("ps", "--json").json()["managers"]
        listener.until("WATCHDOG=1", times=3)
        process.tell(signal.SIGHUP)
        listener.until("RELOADING=1")
        listener.until("READY=1")
        process.tell(signal.SIGTERM)
        listener.until("STOPPING=1")
        assert process.ended() == 0


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, ServiceManager()),
        ({"NOTIFY_SOCKET": "/run/x"}, ServiceManager("/run/x")),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "20000000"}, ServiceManager("/run/x", 20 * SECOND)),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "20", "WATCHDOG_PID": "1"}, ServiceManager("/run/x")),
        ({"WATCHDOG_USEC": "20", "WATCHDOG_PID": str(os.getpid())}, ServiceManager(None, 20)),
        ({"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "soon"}, ServiceManager()),
        ({"WATCHDOG_USEC": "0"}, ServiceManager()),
    ],
)
def test_what_the_environment_says(
    variables: dict[str, str], wanted: ServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert config.service_manager() == wanted


def test_the_unit_in_the_documentation_says_what_the_code_relies_on() -> None:
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "systemd.md").read_text()
    unit = page.split("```ini\n")[1].split("```")[0]
    for line in ("Type=notify", "WatchdogSec=", "KillMode=mixed", "ExecReload=/bin/kill -HUP $MAINPID"):
        assert line in unit
