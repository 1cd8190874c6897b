"""A real server for the tests that ask one, and a site that stands in for any other."""

import re
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from tests.cli.command_line import Process, pitboss
from tests.deploy.files import Serving, image_command, unit


def create_key(folder: Path, name: str, *roles: str) -> str:
    options = [option for role in roles for option in ("--role", role)]
    made = pitboss("keys", "create", name, *options, "--store", f"sqlite:///{folder / 'pitboss.db'}")
    assert made.code == 0, made.err
    return made.out.strip()


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """What the image runs, with systemd's end of the unit. At the end the server stops as asked."""
    folder = tmp_path_factory.mktemp("server")
    worker, viewer = create_key(folder, "workers", "worker", "producer"), create_key(folder, "autoscaler", "viewer")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(folder / "notify"))
        notified.settimeout(30)
        told = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "400000"}
        with Process(*image_command(), cwd=folder, env=told) as process:
            process.until("the HTTP API is at")
            (port,) = re.findall(r"the HTTP API is at \S+:(\d+) ", process.said)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                yield Serving(process, int(port), client, worker, viewer, notified)
            process.tell(signal.SIGTERM)
            assert process.ended(float(unit("pitboss.service")["TimeoutStopSec"][0])) == 0


class Answering(BaseHTTPRequestHandler):
    """Ready or not, as the test says."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def answering() -> Iterator[HTTPServer]:
    """Its class has a `status`, which is its answer to /readyz; other paths are not found."""
    handler = type("Own", (Answering,), {})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
