"""Requests that no HTTP library would send, over a plain socket."""

import json
import socket
from contextlib import suppress
from typing import Any, NamedTuple

from tests.http.site import Site


class RawAnswer(NamedTuple):
    """`code` 0: the server closed the connection without an answer."""

    code: int
    head: str
    body: bytes

    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


def connect(site: Site, timeout: float = 5) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.port), timeout)


def send(site: Site, text: str | bytes, timeout: float = 5) -> RawAnswer:
    """Send this, and read until the answer is whole or the connection ends."""
    with connect(site, timeout) as connection:
        with suppress(ConnectionError):
            connection.sendall(text.encode("latin-1") if isinstance(text, str) else text)
        return answer(connection)


def answer(connection: socket.socket) -> RawAnswer:
    got = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in got or len(got) < _whole_length(got):
            piece = connection.recv(65_536)
            if not piece:
                break
            got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    text = head.decode("latin-1").lower()
    return RawAnswer(int(text.split(" ")[1]) if text else 0, text, body)


def get(path: str, *headers: str, method: str = "GET", host: str = "localhost") -> str:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close"]
    return "\r\n".join(lines) + "\r\n\r\n"


def post(path: str, body: str, *headers: str) -> str:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close"]) + "\r\n\r\n" + body


def _whole_length(got: bytes) -> int:
    head, _, _ = got.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(head) + 4 + int(line.split(b":")[1])
    return len(got) + 1
