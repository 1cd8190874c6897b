"""A stand-in for the webhook of users, on loopback. Some users' webhooks fail for a while, others always."""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """`failures` says how many requests for a user fail before one succeeds. `arrivals` is its log."""

    def __init__(self, failures: Mapping[str, int]) -> None:
        self.failures = failures
        self.arrivals: list[dict[str, Any]] = []
        self.url = ""
        self._lock = threading.Lock()

    def handle(self, notice: dict[str, Any]) -> HTTPStatus:
        with self._lock:
            before = Counter(one["user_id"] for one in self.arrivals)[notice["user_id"]]
            failed = before < self.failures.get(notice["user_id"], 0)
            status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.NO_CONTENT
            self.arrivals.append({**notice, "status": int(status)})
            return status

    def requests(self, user_id: str) -> list[int]:
        """The answers that the requests for a user got."""
        return [one["status"] for one in self.arrivals if one["user_id"] == user_id]


@contextmanager
def serving(webhook: Webhook) -> Iterator[Webhook]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.webhook = webhook
    webhook.url = f"http://127.0.0.1:{server.server_port}/notices"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="webhook", daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    webhook: Webhook


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.webhook.handle(body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 – the name of the base class
        """Print nothing: `Webhook.arrivals` is the log."""
