"""The stand-in web site on loopback, and the webhook that gets the notices. Its log says what the pipeline did."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

ROBOTS = "User-agent: *\nDisallow: /private/\n"
PAGES = {
    "/coast": '<h1>Coast</h1><video src="/files/coast.mp4" controls></video><a href="/files/harbour.mp4">Harbour</a>',
    "/forest": '<video><source src="files/forest.mp4" type="video/mp4"></video><a href="/coast">more</a>',
    "/city": '<a href="/files/city.mp4">City</a> <a href="/private/secret.mp4">not for robots</a>',
    "/damaged": '<video src="/files/corrupt.mp4"></video>',
}
BUSY, RETRY_AFTER = "/city", 1
GONE, MENDED_PAGE = "/lake", '<video src="/files/lake.mp4"></video>'
WEBHOOK = "/notices"


class Arrival(NamedTuple):
    """One request. `at` is in seconds on a clock that is not set."""

    at: float
    path: str
    status: int
    client: str


class Site:
    """The pages above. The busy one answers its first request with 429, and one page is not there until `mend`."""

    def __init__(self, files: Path, tell: Callable[[dict[str, Any]], None]) -> None:
        self.files = files
        self.arrivals: list[Arrival] = []
        self.notices: list[dict[str, Any]] = []
        self.url = ""
        self._pages = dict(PAGES)
        self._tell = tell
        self._lock = threading.Lock()

    def mend(self) -> None:
        """From now on, the broken link leads somewhere."""
        self._pages[GONE] = MENDED_PAGE

    def answer(self, path: str, client: str) -> tuple[HTTPStatus, str, bytes]:
        """The status, the type and the body of an answer."""
        with self._lock:
            first = all(one.path != path for one in self.arrivals)
            status, kind, body = self._found(path, first=first)
            self.arrivals.append(Arrival(time.monotonic(), path, int(status), client))
        return status, kind, body

    def notified(self, notice: dict[str, Any]) -> None:
        with self._lock:
            self.notices.append(notice)
            self._tell(notice)

    def _found(self, path: str, *, first: bool) -> tuple[HTTPStatus, str, bytes]:
        if path == BUSY and first:
            return HTTPStatus.TOO_MANY_REQUESTS, "text/plain", b"later"
        if path == "/robots.txt":
            return HTTPStatus.OK, "text/plain", ROBOTS.encode()
        if path in self._pages:
            return HTTPStatus.OK, "text/html; charset=utf-8", f"<html>{self._pages[path]}</html>".encode()
        file = self.files / path.removeprefix("/files/")
        if path.startswith("/files/") and file.is_file():
            return HTTPStatus.OK, "video/mp4", file.read_bytes()
        return HTTPStatus.NOT_FOUND, "text/plain", b"nothing here"


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve on a free port of loopback until the end of the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.site = site
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="site", daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    site: Site


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        status, kind, body = self.server.site.answer(self.path, self.headers.get("User-Agent", ""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            self.send_header("Retry-After", str(RETRY_AFTER))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.server.site.notified(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 – the name of the base class
        """Print nothing: `Site.arrivals` is the log."""
