"""The part of HTTP/1.1 that a site and a forward proxy need."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

_LONGEST_HEAD = 64 * 1024
_PATIENCE = 30.0
_HEAD_END = b"\r\n\r\n"


class Request(NamedTuple):
    """A request. `peer` is the caller's address; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    peer: str


class Response(NamedTuple):
    """A response."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join(lines).encode("latin-1") + _HEAD_END + self.body


# None closes the connection without an answer.
Handle = Callable[[Request], Awaitable[Response | None]]


class Server:
    """Listens on one loopback address. After a stop it can be started again on the same port."""

    def __init__(self, handle: Handle, *, host: str = "127.0.0.1") -> None:
        self._handle, self._host = handle, host
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    async def start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self._host, self.port, limit=_LONGEST_HEAD)
            self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections, and close the open ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in [*self._open]:
                writer.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._converse(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
            pass  # no answer for a caller that disconnects or does not speak HTTP
        finally:
            self._open.discard(writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0]
        while True:
            request = await asyncio.wait_for(_read_request(reader, peer), _PATIENCE)
            answer = await self._handle(request)
            if answer is None:
                return
            writer.write(answer.encoded())
            await writer.drain()
            if request.headers.get("connection", "").lower() == "close":
                return


async def _read_request(reader: asyncio.StreamReader, peer: str) -> Request:
    line, headers = await _read_head(reader)
    method, target, _ = line.split(" ", 2)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body, peer)


async def read_response(reader: asyncio.StreamReader) -> Response:
    """Read a response with a Content-Length."""
    line, headers = await _read_head(reader)
    status = int(line.split(" ", 2)[1])
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    kept = tuple((name, value) for name, value in headers.items() if name not in ("content-length", "connection"))
    return Response(status, body, kept)


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    head = (await reader.readuntil(_HEAD_END)).decode("latin-1")
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}
