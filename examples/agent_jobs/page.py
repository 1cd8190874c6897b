"""A small page on loopback that signs users up and publishes events: `python page.py`, then open it."""

import argparse
import json
import logging
import signal
import sqlite3
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from app_core import core
from pitboss import PitbossError
from workers.events.handlers import app
from workers.events.utils.publishing import sign_up
from workers.logs import configure
from workers.settings import Settings

HTML = Path(__file__).with_name("page.html")
_LONGEST = 100_000
log = logging.getLogger("page")


class Refused(Exception):
    """A request that cannot be answered as asked."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer(HTTPStatus.OK, HTML.read_bytes(), "text/html; charset=utf-8")
        else:
            self._answer_json(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})

    def do_POST(self) -> None:
        try:
            self._answer_json(HTTPStatus.CREATED, self._done(self._body()))
        except Refused as refused:
            self._answer_json(refused.status, {"error": str(refused)})
        except PitbossError as error:
            self._answer_json(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def _done(self, body: dict[str, Any]) -> dict[str, Any]:
        match self.path, body:
            case "/signup", {"email": str(email)}:
                try:
                    return {"user_id": sign_up(email)}
                except sqlite3.IntegrityError as error:
                    raise Refused(HTTPStatus.CONFLICT, f"{email} has signed up before") from error
            case "/events", {"name": str(name)}:
                key, once = body.get("key"), body.get("idempotency_key")
                published = app.publish(name, body.get("data"), key=key, idempotency_key=once)
                return {"id": published.id, "created": published.created, "handlers": published.handlers}
        raise Refused(HTTPStatus.BAD_REQUEST, 'POST /signup {"email": …}, or POST /events {"name": …, "data": …}')

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        # JSON only: the form of another site cannot send that.
        if self.headers.get_content_type() != "application/json" or length > _LONGEST:
            self.close_connection = True
            raise Refused(HTTPStatus.BAD_REQUEST, f"send JSON (application/json) of up to {_LONGEST} bytes")
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"this is not JSON: {error}") from error
        return body if isinstance(body, dict) else {}

    def _answer_json(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        self._answer(status, json.dumps(body).encode(), "application/json")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 – the name of the base class
        log.debug(format, *args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--log", type=Path, default=Path("page.log"))
    asked = parser.parse_args()
    configure(asked.log, Settings.load().log_level)
    server = ThreadingHTTPServer(("127.0.0.1", asked.port), Page)
    threading.Thread(target=server.serve_forever, args=(0.05,), name="page", daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log.info("the page is at http://127.0.0.1:%d", server.server_port)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    server.shutdown()
    server.server_close()
    app.close()
    core.close()


if __name__ == "__main__":
    main()
