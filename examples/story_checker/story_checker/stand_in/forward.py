"""A forward proxy with a password. The site sees its exit address."""

import asyncio
from base64 import b64encode
from contextlib import suppress
from urllib.parse import urlsplit

from story_checker.stand_in.http1 import Request, Response, Server, read_response

_OWN_HEADERS = ("proxy-authorization", "proxy-connection", "connection", "content-length")
_PATIENCE = 10.0


class ForwardProxy:
    """Forwards plain HTTP to loopback from `exit_address`, and nothing else."""

    def __init__(self, name: str, exit_address: str, *, user: str, password: str) -> None:
        self.name, self.exit_address = name, exit_address
        self.user, self.password = user, password
        self.server = Server(self._handle)
        self.cut = False
        self.forwarded = 0

    @property
    def url(self) -> str:
        """The address without the password."""
        return self.server.url

    @property
    def line(self) -> str:
        """A line of a proxy list: host:port:user:password."""
        return f"127.0.0.1:{self.server.port}:{self.user}:{self.password}"

    async def _handle(self, request: Request) -> Response | None:
        if self.cut:
            return None
        wanted = b64encode(f"{self.user}:{self.password}".encode()).decode()
        if request.headers.get("proxy-authorization") != f"Basic {wanted}":
            return Response(407, b"", (("Proxy-Authenticate", 'Basic realm="proxy"'),))
        target = urlsplit(request.target)
        if target.scheme != "http" or target.hostname != "127.0.0.1" or target.port is None:
            return Response(403, b"this proxy only leads to loopback")
        path = target.path + (f"?{target.query}" if target.query else "")
        try:
            return await asyncio.wait_for(self._forwarded(request, target.port, path), _PATIENCE)
        except (OSError, TimeoutError):
            return Response(502, b"the site does not answer")
        except (asyncio.IncompleteReadError, ValueError):
            return None

    async def _forwarded(self, request: Request, port: int, path: str) -> Response:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(self.exit_address, 0))
        try:
            kept = [(name, value) for name, value in request.headers.items() if name not in _OWN_HEADERS]
            kept += [("content-length", str(len(request.body))), ("connection", "close")]
            head = "".join(f"{name}: {value}\r\n" for name, value in kept)
            writer.write(f"{request.method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + request.body)
            await writer.drain()
            self.forwarded += 1
            return await read_response(reader)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
